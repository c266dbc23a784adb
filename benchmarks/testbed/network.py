"""The network of a machine as network name spaces that live as long as this process.

The process has to run in its own name spaces (``isolated``). Bridges are in its network name space,
and the ranks ``r0``, ``r1``, ... are in named ones below a private /run. All of them vanish when
the process ends. The network has no link to the outside. Besides the shaped network, every rank has
an unshaped link to the launcher.
"""

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from shaping import MTU, Link, bridges, lanes, links, shaped, shaped_towards

from collir.machine import Machine

LAUNCHER = "10.1.0.254"
FOLDER = Path("/run/testbed")
"""Folder of temporary files."""

_SETTINGS = {
    # Receive windows far above the bytes under way; otherwise segments with old ACK fields are
    # dropped.
    "net/ipv4/tcp_rmem": "4096 4194304 4194304",
    "net/ipv4/tcp_wmem": "4096 262144 262144",
    # No recovery, because nothing is lost: late packets wait in the queue of a slow link.
    "net/ipv4/tcp_recovery": "0",
    "net/ipv4/tcp_reordering": "127",
    "net/ipv4/tcp_early_retrans": "0",
    "net/ipv4/tcp_slow_start_after_idle": "0",
    "net/ipv4/tcp_no_metrics_save": "1",
    "net/ipv4/tcp_congestion_control": "reno",
    "net/ipv6/conf/all/disable_ipv6": "1",
}


def isolated(command: Sequence[str]) -> list[str]:
    """Return a command that runs ``command`` and its children in their own name spaces."""
    flags = ["-n", "-m", "-p", "-f", "--kill-child", "--mount-proc"]
    return ["unshare", *([] if os.geteuid() == 0 else ["-r"]), *flags, *command]


def build(machine: Machine) -> list[Link]:
    """Build the network, and return its links.

    Raises:
        RuntimeError: A command failed.
    """
    # The network of the computer must stay untouched.
    if os.getpid() != 1:
        raise RuntimeError("the network is only made in name spaces of its own")
    _run(["mount", "-t", "tmpfs", "none", "/run"])
    FOLDER.mkdir(parents=True)
    _without_firewall()
    Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").write_text("1")
    all_links = links(machine)
    ranks = [link for link in all_links if link.is_rank]
    outside: list[str] = ["link set lo up"]
    for name in (*bridges(machine), "control"):
        outside += [
            f"link add {name} mtu {MTU} type bridge stp_state 0 mcast_snooping 0 "
            "ageing_time 10000000",
            f"link set {name} up",
        ]
    outside.append(f"addr add {LAUNCHER}/24 dev control")
    for rank in range(len(ranks)):
        outside.append(f"netns add r{rank}")
    for link in all_links:
        outside += _pair(link.outside, link.inside, link.bridge, link.child if link.is_rank else -1)
        if not link.is_rank:
            within = f"br{link.level + 1}-{link.child}"
            outside += [f"link set {link.inside} master {within}", f"link set {link.inside} up"]
    for rank in range(len(ranks)):
        outside += _pair(f"ctl{rank}", "ctl", "control", rank)
    _batch(["ip"], outside)
    _batch(["tc"], [line for link in all_links for line in shaped(link.outside, link.rate)])
    within = (link for link in all_links if not link.is_rank)
    _batch(["tc"], [line for link in within for line in shaped(link.inside, link.rate)])
    for rank, link in enumerate(ranks):
        _batch(["ip", "-n", f"r{rank}"], _addresses(rank, len(ranks)))
        _batch(["tc", "-n", f"r{rank}"], _sending(machine, rank, link))
        lines = [f"echo {value} > /proc/sys/{name}" for name, value in _SETTINGS.items()]
        _run(["ip", "netns", "exec", f"r{rank}", "sh", "-ec", "\n".join(lines)])
    return all_links


def _sending(machine: Machine, rank: int, link: Link) -> Iterator[str]:
    """Return the commands that shape what a rank sends: to all others, or to each."""
    if rates := lanes(machine):
        towards = {f"10.0.0.{peer + 1}": rate for peer, rate in enumerate(rates[rank]) if rate}
        return shaped_towards("eth0", towards)
    return shaped("eth0", link.rate)


def _pair(outside: str, inside: str, master: str, rank: int) -> list[str]:
    """Return the commands for a link.

    Its inner end is in the name space of a rank; with -1, it is in that of the bridges.
    """
    where = f" netns r{rank}" if rank >= 0 else ""
    size = f"mtu {MTU} gso_max_size {MTU} gso_max_segs 1"
    return [
        f"link add {outside} {size} type veth peer name {inside} {size}{where}",
        f"link set {outside} master {master}",
        f"link set {outside} up",
    ]


def _addresses(rank: int, ranks: int) -> list[str]:
    """Return the commands for a rank's own interfaces; all addresses are fixed in advance."""
    lines = ["link set lo up", f"link set eth0 address {_hardware(rank)}"]
    for device, net in (("eth0", 0), ("ctl", 1)):
        lines += [f"link set {device} up", f"addr add 10.{net}.0.{rank + 1}/24 dev {device}"]
    lines.append(
        f"route change 10.0.0.0/24 dev eth0 src 10.0.0.{rank + 1} initcwnd 64 initrwnd 400 "
        "rto_min 1s"
    )
    for peer in range(ranks):
        if peer != rank:
            lines.append(
                f"neigh add 10.0.0.{peer + 1} lladdr {_hardware(peer)} dev eth0 nud permanent"
            )
    return lines


def _hardware(rank: int) -> str:
    return f"02:00:00:00:00:{rank + 1:02x}"


def _without_firewall() -> None:
    """Let bridges of this network bypass the firewall."""
    setting = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
    if setting.exists():
        setting.write_text("0")


def _batch(command: Sequence[str], lines: Iterable[str]) -> None:
    _run([*command, "-batch", "-"], "\n".join(lines) + "\n")


def _run(command: Sequence[str], given: str = "") -> None:
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout, done.stderr, file=sys.stderr)
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()}")
