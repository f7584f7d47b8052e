# SPDX-License-Identifier: Apache-2.0
"""One request with a Python library: fetch.py LIBRARY URL. Prints the body; a failure is the library's own traceback."""
import asyncio
import sys
import urllib.parse


def with_urllib(url):
    import urllib.request
    with urllib.request.urlopen(url) as answer:
        print(answer.read().decode())


def with_requests(url):
    import requests
    print(requests.get(url).text)


def with_httpx(url):
    import httpx
    print(httpx.get(url, verify="/etc/ssl/certs/ca-certificates.crt").text)


def with_aiohttp(url):
    import aiohttp

    async def main():
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            print(await answer.text())
    asyncio.run(main())


def with_asyncio(url):
    async def main():
        parts = urllib.parse.urlsplit(url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 443, ssl=True)
        writer.write(f"GET / HTTP/1.0\r\nHost: {parts.hostname}\r\n\r\n".encode())
        print((await reader.read()).decode())
        writer.close()
    asyncio.run(main())


def with_websockets(url):
    import websockets

    async def main():
        async with websockets.connect(url.replace("https:", "wss:") + "ws") as socket:
            await socket.send("lab echo")
            print(await socket.recv())
    asyncio.run(main())


def with_pycurl(url):
    import pycurl
    curl = pycurl.Curl()
    curl.setopt(pycurl.URL, url)
    curl.perform()


if __name__ == "__main__":
    globals()["with_" + sys.argv[1]](sys.argv[2])
