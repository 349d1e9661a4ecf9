# SPDX-License-Identifier: Apache-2.0
"""A file of lines for each workload, for a log shipper to tail beside the workload's own log.

Owns the directory. Names come from outside, and so may what lies in the
directory: a file is opened only if it is a plain one of its own, no link of any kind.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from pathlib import Path

MAX_BYTES = 1024 * 1024
MAX_FILES = 1000
_SUFFIX = ".log"
_MAX_NAME = 180
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-:@+")
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


def file_name(workload: str) -> str:
    """Return a file name for a workload: ``namespace/pod`` is ``namespace_pod.log``.

    Different workloads have different names. Bytes that are neither letters,
    digits nor one of ``.-:@+`` are written ``%NN``, as is a dot at the start.
    """
    name = ""
    for number, byte in enumerate(workload.encode("utf-8", "surrogateescape")):
        char = chr(byte)
        if char == "/":
            name += "_"
        elif char in _PLAIN and not (char == "." and number == 0):
            name += char
        else:
            name += f"%{byte:02X}"
    if len(name) > _MAX_NAME:
        digest = hashlib.sha256(workload.encode("utf-8", "surrogateescape")).hexdigest()
        name = f"{name[: _MAX_NAME - 17]}~{digest[:16]}"
    return (name or "%") + _SUFFIX


class WorkloadFiles:
    """Appends lines to the files of workloads."""

    def __init__(
        self, directory: Path, *, max_bytes: int = MAX_BYTES, max_files: int = MAX_FILES
    ) -> None:
        self._directory = directory
        self._max_bytes, self._max_files = max_bytes, max_files

    def append(self, workload: str, line: str) -> None:
        """Append a line. Raises ``OSError``."""
        name = file_name(workload)
        data = (line + "\n").encode("utf-8", "replace")
        self._directory.mkdir(parents=True, exist_ok=True)
        place = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            file = self._open(place, name)
            try:
                if os.fstat(file).st_size + len(data) > self._max_bytes:
                    os.close(file)
                    file = -1
                    os.rename(name, name + ".1", src_dir_fd=place, dst_dir_fd=place)
                    file = self._open(place, name)
                if os.write(file, data) < len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            finally:
                if file >= 0:
                    os.close(file)
        finally:
            os.close(place)

    def _open(self, place: int, name: str) -> int:
        try:
            file = os.open(name, _FLAGS, dir_fd=place)
        except FileNotFoundError:
            self._make_room(place)
            file = os.open(name, _FLAGS | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=place)
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            os.close(file)
            raise OSError(f"{name}: is not a plain file of its own, so nothing is written to it")
        return file

    def _make_room(self, place: int) -> None:
        """Remove the files that were not written for the longest time, if there are too many."""
        names = [name for name in os.listdir(place) if name.endswith(_SUFFIX)]
        excess = len(names) - self._max_files + 1
        if excess <= 0:
            return
        ages = []
        for name in names:
            with contextlib.suppress(OSError):
                ages.append((os.lstat(name, dir_fd=place).st_mtime, name))
        for _age, name in sorted(ages)[:excess]:
            for each in (name, name + ".1"):
                with contextlib.suppress(OSError):
                    os.unlink(each, dir_fd=place)
