# SPDX-License-Identifier: Apache-2.0
"""DNS as a sandbox sees it, through port 53 and the gate to the resolver process, against unbound with one thread and
dnsmasq on the loopback of the host; all ask the same responder. Names that are all new (miss) and denied ones go through a
policy of names; so do hits, whose answers are synthetic."""
import os
import re
import time

import paths
from arena import UPSTREAM, Arena, BenchError, Shell

DOMAIN, DENIED, ZONES = "allowed.example", "blocked.example", 10000
HITS, MISSES = 100, 60000
PORTS = {"unbound": 5301, "dnsmasq": 5302}


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def configure(path):
    zones = [f"z{i}.example" for i in range(ZONES)] + [DENIED]
    with open(os.path.join(paths.HERE, "name_unbound.conf.in"), encoding="utf-8") as file:
        text = file.read().replace("@ZONES@", "\n".join(f' local-zone: "{zone}" always_refuse' for zone in zones))
    write(f"{path}/unbound.conf", text.replace("@UPSTREAM@", UPSTREAM).replace("@DIR@", path))
    write(f"{path}/dnsmasq.conf", "port=5302\nlisten-address=127.0.0.1\nbind-interfaces\nno-resolv\nno-hosts\n"
          f"server={UPSTREAM}\ncache-size=10000\ndns-forward-max=2000\nuser=root\npid-file=\nno-poll\n" +
          "".join(f"address=/{zone}/\n" for zone in zones))
    write(f"{path}/hit", "".join(f"n{i % HITS}.{DOMAIN} A\n" for i in range(10000)))
    write(f"{path}/denied", "".join(f"x{i % 1000}.{DENIED} A\n" for i in range(10000)))


class Questions:
    """dnsperf in one place. Each miss asks names that nobody asked before."""
    asked = 0

    def __init__(self, path, shell, target):
        self.path, self.shell, self.target = path, shell, target

    def ask(self, kind, outstanding, seconds):
        """Answers per second, and the average latency in microseconds."""
        source = f"{self.path}/{kind}"
        if kind == "miss":
            Questions.asked += 1
            write(source, "".join(f"m{Questions.asked}-{i}.{DOMAIN} A\n" for i in range(MISSES)))
        self.shell.say(f"dnsperf {self.target} -d {source} -c 8 -T 1 -q {outstanding} -l {seconds} -t 2 -W")
        text = ""
        while "Run time" not in text or "Latency StdDev" not in text:
            line = self.shell.line()
            text += line
            if not line or line == "{}\n":
                raise BenchError(f"dnsperf: {text.strip() or 'no answer'}")
        completed = re.search(r"Queries completed: +(\d+) \(([\d.]+)%\)", text)
        if float(completed[2]) < 99:
            print(f"  {self.target} {kind}: only {completed[2]} % answered")
        return (float(re.search(r"Queries per second: +([\d.]+)", text)[1]),
                float(re.search(r"Average Latency \(s\): +([\d.]+)", text)[1]) * 1e6)


def measure(questions, seconds):
    figures = {kind: questions.ask(kind, 100, seconds)[0] for kind in ("hit", "miss", "denied")}
    figures["latency"] = questions.ask("miss", 1, seconds)[1]
    print(f"  {questions.target.split()[-1]:10} " + " ".join(f"{name} {value:.4g}" for name, value in figures.items()), flush=True)
    return figures


def peer(path, name, seconds):
    with Arena(path) as arena:
        command = {"unbound": ["unbound", "-d", "-c", f"{path}/unbound.conf"],
                   "dnsmasq": ["dnsmasq", "-k", "-C", f"{path}/dnsmasq.conf"]}[name]
        arena.start("host", command)
        time.sleep(0.7)
        return measure(Questions(path, Shell(arena, "host", []), f"-s 127.0.0.1 -p {PORTS[name]}"), seconds)


def ours(path, seconds):
    with Arena(path) as arena:
        policy = [word for name in [f"*.{DOMAIN}"] + [f"z{i}.example" for i in range(100)] for word in ("--allow", name)]
        prefix = paths.environment("root", path) + [f"{path}/penstock", "run", "--quiet", "--log", f"{path}/root/decisions",
                                                    "--read", path] + policy + ["--"]
        shell = Shell(arena, "host", prefix, cwd=f"{path}/root/project")
        figures = measure(Questions(path, shell, "-s 127.0.0.1 -p 53"), seconds)
        os.unlink(f"{path}/root/decisions")
        return figures


def names(path, options, ratios):
    configure(path)
    for _ in range(options.rounds):
        gate = ours(path, options.seconds)
        for name in PORTS:
            other = peer(path, name, options.seconds)
            for kind in ("miss", "hit", "denied"):
                ratios.add(f"dns_{kind}_vs_{name}", gate[kind], other[kind])
            if name == "unbound":
                ratios.add("dns_miss_latency_vs_unbound", gate["latency"], other["latency"])
