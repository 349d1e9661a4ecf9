# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes the exporter, and finds one series per card."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cardwatch.families import BY_NAME, Scope
from e2e.harness import NODE, Exporter
from nvml_c import Stub

Serve = Callable[..., Exporter]
_CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: cardwatch
    honor_labels: true
    static_configs:
      - targets: ["127.0.0.1:{port}"]
        labels: {{node: {node}, cluster: test}}
"""


class Prometheus:
    """A Prometheus server of its own for one test."""

    def __init__(self, directory: Path, target: int) -> None:
        binary = shutil.which("prometheus")
        if binary is None:
            pytest.skip("prometheus is not installed (Debian package prometheus)")
        config = directory / "prometheus.yaml"
        config.write_text(_CONFIG.format(port=target, node=NODE))
        # This release cannot choose a port itself; another process may take it in between.
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self._log = directory / "prometheus.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    binary,
                    f"--config.file={config}",
                    f"--storage.tsdb.path={directory / 'prometheus'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdout=log,
                stderr=log,
            )

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the result of an instant query; empty while the server is not ready."""
        query = urllib.parse.urlencode({"query": expression})
        url = f"http://127.0.0.1:{self.port}/api/v1/query?{query}"
        assert self._process.poll() is None, self._log.read_text()
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=10) as answer:
            result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            return result
        return []

    def await_result(self, expression: str, timeout: float = 60) -> list[dict[str, Any]]:
        """Return the first result that is not empty."""
        deadline = time.monotonic() + timeout
        while not (result := self.query(expression)):
            assert time.monotonic() < deadline, f"{expression}: nothing\n{self._log.read_text()}"
            time.sleep(0.1)
        return result

    def close(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@pytest.fixture
def eight(stub: Stub, tmp_path: Path) -> Iterator[Stub]:
    """Eight H100."""
    with Stub.h100_node(directory=tmp_path / "driver-8") as made:
        yield made


def test_prometheus_has_each_family_once_per_card(nvml: Serve, eight: Stub, tmp_path: Path) -> None:
    """Every family about cards that the page has can be queried, with a value for each card."""
    exporter = nvml("--profile", "full", "--interval", "1s", env=eight.env())
    page = exporter.await_page(lambda p: list(p.up().values()) == [1.0] * 8)
    prometheus = Prometheus(tmp_path, exporter.port)
    try:
        prometheus.await_result("count(gpu_up) == 8")
        assert prometheus.query("up")[0]["value"][1] == "1"
        names = [name for name in page.samples if BY_NAME[name].scope is Scope.GPU]
        assert len(names) > 60
        for name in names:
            per_card = prometheus.query(f"count by (node, gpu, uuid) ({name})")
            cards = {r["metric"]["uuid"] for r in per_card}
            assert cards == set(page.by("uuid", name)), name
            if not BY_NAME[name].labels:
                assert {r["value"][1] for r in per_card} == {"1"}, name
            assert {r["metric"]["node"] for r in per_card} == {NODE}, name
        assert prometheus.query("exported_node") == []
        same = prometheus.query("count(gpu_temperature_celsius == 58)")
        assert same[0]["value"][1] == "8"
    finally:
        prometheus.close()
