# SPDX-License-Identifier: Apache-2.0
"""What the web servers of the test internet offer: an index for pip, a registry for npm and a repository for apt, each with
a package or two made here, and a page for browsers. Every name of the lab serves all of it."""
import base64
import gzip
import hashlib
import io
import json
import os
import tarfile
import zipfile

FILES_HOST = "https://files.pythonhosted.org"
REGISTRY = "https://registry.npmjs.org"
# Python package -> what it needs. "requests" and its company are ours; only their names are borrowed.
WHEELS = {"requests": ["certifi", "charset-normalizer", "idna", "urllib3"], "certifi": [], "charset-normalizer": [],
          "idna": [], "urllib3": [], "lab-hello": []}
RELATIVE = "lab-hello"     # its files are linked relative to the index, those of the others on FILES_HOST
NPM_PACKAGE = "lab-hello"
DEB_PACKAGE = "lab-hello"
VERSION = "1.0.0"
HELLO = "hello from the lab"

# Says in its text, for each of these, whether it could be loaded.
BROWSER = """<!DOCTYPE html>
<script>function say(what, how) { document.documentElement.setAttribute("data-" + what, how); }</script>
""" + "".join(f"""<script src="https://{at}/script.js"
  onload="say('{what}', 'loaded')" onerror="say('{what}', 'failed')"></script>
""" for what, at in (("v4", "v4.example"), ("v6", "v6.example"), ("both", "both.example"), ("name", "denied.example"),
                     ("port", "v4.example:4444"), ("address", "[2001:db8:100::9]")))


def make(www):
    """Writes everything below the folder www, which is the root of the web servers."""
    for name, needs in WHEELS.items():
        make_wheel(www, name, needs)
    write(os.path.join(www, "browser.html"), BROWSER)
    write(os.path.join(www, "script.js"), "0\n")
    make_npm(www)
    make_debian(www)


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode())


# ---- pip: PEP 503 (simple index) and PEP 427 (wheels) ----

def make_wheel(www, name, needs):
    module = name.replace("-", "_")
    info = f"{module}-{VERSION}.dist-info"
    files = {f"{module}/__init__.py": f'"""Made by the lab."""\nHELLO = "{HELLO}"\n',
             f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {VERSION}\n" +
                                 "".join(f"Requires-Dist: {need}\n" for need in needs),
             f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: lab\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    record = "".join(f"{path},sha256={digest64(text)},{len(text)}\n" for path, text in files.items())
    files[f"{info}/RECORD"] = record + f"{info}/RECORD,,\n"
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
    data = archive.getvalue()
    file = f"packages/{module}-{VERSION}-py3-none-any.whl"
    write(os.path.join(www, file), data)
    base = "../.." if name == RELATIVE else FILES_HOST
    link = f'<a href="{base}/{file}#sha256={hashlib.sha256(data).hexdigest()}">{os.path.basename(file)}</a>'
    write(os.path.join(www, "simple", name, "index.html"), f"<!DOCTYPE html>\n<html><body>{link}</body></html>\n")


def digest64(text):
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


# ---- npm ----

def make_npm(www):
    manifest = {"name": NPM_PACKAGE, "version": VERSION, "main": "index.js"}
    data = tar_gz({"package/package.json": json.dumps(manifest), "package/index.js": f'module.exports = "{HELLO}";\n'})
    tarball = f"tarballs/{NPM_PACKAGE}-{VERSION}.tgz"
    write(os.path.join(www, tarball), data)
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
    version = {**manifest, "dist": {"tarball": f"{REGISTRY}/{tarball}", "integrity": integrity,
                                    "shasum": hashlib.sha1(data).hexdigest()}}
    write(os.path.join(www, NPM_PACKAGE, "index.html"),
          json.dumps({"name": NPM_PACKAGE, "dist-tags": {"latest": VERSION}, "versions": {VERSION: version}}))


def tar_gz(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=tarfile.GNU_FORMAT) as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return out.getvalue()


# ---- apt: a flat repository ----

def make_debian(www):
    control = (f"Package: {DEB_PACKAGE}\nVersion: {VERSION}\nArchitecture: all\nMaintainer: Lab <lab@example.com>\n"
               f"Description: {HELLO}\n")
    deb = b"!<arch>\n"
    for name, data in (("debian-binary", b"2.0\n"), ("control.tar.gz", tar_gz({"./control": control})),
                       ("data.tar.gz", tar_gz({"./usr/share/lab-hello": HELLO + "\n"}))):
        deb += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode() + data + b"\n" * (len(data) % 2)
    file = f"{DEB_PACKAGE}_{VERSION}_all.deb"
    packages = (control + f"Filename: ./{file}\nSize: {len(deb)}\nSHA256: {hashlib.sha256(deb).hexdigest()}\n\n").encode()
    indexes = {"Packages": packages, "Packages.gz": gzip.compress(packages)}
    release = "Origin: lab\nSuite: stable\nDate: Wed, 01 Jan 2025 00:00:00 UTC\nSHA256:\n" + "".join(
        f" {hashlib.sha256(data).hexdigest()} {len(data)} {name}\n" for name, data in indexes.items())
    for name, data in {file: deb, "Release": release, **indexes}.items():
        write(os.path.join(www, "debian", name), data)
