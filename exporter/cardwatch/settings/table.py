# SPDX-License-Identifier: Apache-2.0
"""The table of settings: each is one field with its flag, kind, default and help."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from cardwatch.families.record import Profile
from cardwatch.settings import kinds
from cardwatch.verdict.thresholds import NO_OVERRIDES as NO_THRESHOLDS
from cardwatch.verdict.thresholds import Overrides
from cardwatch.xid.classify import NO_OVERRIDES, Override


def setting(
    default: Any, parse: Callable[[Any], Any], help_text: str, flag: str | None = None
) -> Any:
    """Declare one setting. ``flag`` differs from the field's name only where it has dots."""
    metadata = {"parse": parse, "help": help_text, "flag": flag}
    if isinstance(default, Mapping):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Settings:
    """Everything that can be set. Names are the keys of the config file."""

    listen: str = setting(
        ":9836",
        kinds.text,
        "where to serve: :9836 (IPv4 and IPv6), host:port, [::1]:port or unix:PATH",
    )
    backend: str = setting(
        "auto",
        kinds.one_of("auto", "nvml", "sim", "replay"),
        "where readings come from: auto and nvml read the driver, sim a simulated node, "
        "replay a capture",
    )
    interval: float = setting(5.0, kinds.duration(0.1, 3600), "time between two samples")
    deadline: float = setting(
        5.0, kinds.duration(0.1, 600), "a driver call that takes longer marks its card as hung"
    )
    profile: Profile = setting(
        Profile.STANDARD,
        kinds.profile,
        "how much is exported: core (up to 50 series a card), standard (up to 120), full",
    )
    web_config_file: Path | None = setting(
        None,
        kinds.path,
        "TLS and basic authentication, in the format of the Prometheus exporter toolkit",
        "--web.config.file",
    )
    api: str = setting(
        "all", kinds.one_of("all", "loopback"), "who may read /api/: everybody or this host only"
    )
    detach_endpoint: bool = setting(
        False, kinds.flag, "offer POST /-/detach, which lets go of the driver for a while"
    )
    state_dir: Path | None = setting(
        None,
        kinds.path,
        "where the cards once seen are kept (default /var/lib/cardwatch if writable, "
        "else below $XDG_STATE_HOME)",
    )
    node_name: str | None = setting(
        None, kinds.text, "value of the node label (default $NODE_NAME, else the host name)"
    )
    no_node_label: bool = setting(
        False, kinds.flag, "leave the node label to the scrape configuration"
    )
    expect_gpus: int | None = setting(None, kinds.count, "number of cards this node should have")
    labels: tuple[tuple[str, str], ...] = setting(
        (), kinds.labels, "labels for every series, such as cluster, provider, pool, rack"
    )  # config file only
    kmsg: str | None = setting(
        None,
        kinds.text,
        "kernel log to read Xid events from: device, FIFO, file of raw records, or off "
        "(default /dev/kmsg; a simulated node has its own)",
    )
    kmsg_any_facility: bool = setting(
        False, kinds.flag, "also take kernel log records that user space wrote: for drills"
    )
    workload_logs: Path | None = setting(
        None, kinds.path, "also write [gpu-health] lines into a file per workload in this directory"
    )
    xid: Mapping[int, Override] = setting(
        NO_OVERRIDES, kinds.xid, "class and action per Xid code, such as {13: {class: info}}"
    )  # config file only
    health: Overrides = setting(
        NO_THRESHOLDS, kinds.health, "thresholds of the verdict per condition"
    )  # config file only
    scenario: str | None = setting(
        None, kinds.text, "simulation: a packaged scenario by name, or a scenario file"
    )
    capture: Path | None = setting(
        None, kinds.path, "replay: a file written by `cardwatch capture`"
    )
    revoked_exit: float = setting(
        300.0,
        kinds.duration(1, 86400),
        "end with status 75 when the driver's control device has been refused for so long "
        "after it was allowed",
    )
    log_format: str = setting(
        "logfmt", kinds.one_of("logfmt", "json"), "form of the log lines on stderr"
    )
    log_level: str = setting(
        "info", kinds.one_of("debug", "info", "warning", "error"), "least level that is logged"
    )
    path_procfs: Path = setting(Path("/proc"), kinds.path, "the host's /proc", "--path.procfs")
    path_sysfs: Path = setting(Path("/sys"), kinds.path, "the host's /sys", "--path.sysfs")
    path_devfs: Path = setting(Path("/dev"), kinds.path, "the host's /dev", "--path.devfs")

    @property
    def simulated(self) -> bool:
        """True when the cards shown are not this machine's."""
        return self.backend in ("sim", "replay")


CONFIG_ONLY = frozenset({"labels", "xid", "health"})
"""Settings that are too rich for a flag or an environment variable."""


def declared() -> dict[str, Field[Any]]:
    """Return the settings by name, in table order."""
    return {item.name: item for item in fields(Settings)}


def flag_of(item: Field[Any]) -> str:
    """Return the command line flag of a setting."""
    return item.metadata["flag"] or "--" + item.name.replace("_", "-")


def variable_of(item: Field[Any]) -> str:
    """Return the environment variable of a setting."""
    return "CARDWATCH_" + item.name.upper()
