# SPDX-License-Identifier: Apache-2.0
"""NVLink: link states, error counters and traffic, over all links and per link.

Generations count different things under different ids; ``NVLINK_ERRORS`` lists
the candidates. Which of them a card supports is found once and kept, so that a
counter never changes its source while we look.
"""

from __future__ import annotations

from cardwatch.nvml import fields as f
from cardwatch.nvml.codes import NOT_SUPPORTED, DriverError, Outcome
from cardwatch.nvml.fields import ALL_LINKS, NVLINK_ERRORS, SCOPE_GPU, Field
from cardwatch.readings.card import CardPass

_FAMILIES = ("gpu_nvlink_active_links", "gpu_nvlink_errors_total", "gpu_nvlink_supported_links",
             "gpu_nvlink_transmit_bytes_total", "gpu_nvlink_receive_bytes_total",
             "gpu_nvlink_up", "gpu_nvlink_link_errors_total")  # fmt: skip
_UP = (1, 2, 3)  # active, asleep, active without traffic
_TRAFFIC = (
    ("gpu_nvlink_transmit_bytes_total", ((f.NVLINK_DATA_TX_KIB, 1024), (f.NVLINK5_TX_BYTES, 1))),
    ("gpu_nvlink_receive_bytes_total", ((f.NVLINK_DATA_RX_KIB, 1024), (f.NVLINK5_RX_BYTES, 1))),
)
_MAX_LINKS = 64


def read(card: CardPass) -> None:
    """Read everything about the links of a card that has any."""
    with card.attempt(*_FAMILIES):
        links = card.static("links", lambda: _link_count(card))
        card.put("gpu_nvlink_supported_links", links)
        _read_states(card, links)
        _read_errors(card, links)
        _read_traffic(card)


def _link_count(card: CardPass) -> int:
    (count,) = card.fields([(f.NVLINK_LINK_COUNT, SCOPE_GPU)])
    if isinstance(count, DriverError):
        raise count
    if not 0 < count <= _MAX_LINKS:
        raise DriverError(NOT_SUPPORTED)
    return count


def _read_states(card: CardPass, links: int) -> None:
    with card.attempt("gpu_nvlink_active_links", "gpu_nvlink_up"):
        states = card.fields([(f.NVLINK_STATE, link) for link in range(links)])
        if all(_unsupported(state) for state in states):
            states = [_state_by_call(card, link) for link in range(links)]
        if all(isinstance(state, DriverError) for state in states):
            raise next(state for state in states if isinstance(state, DriverError))
        active = [not isinstance(state, DriverError) and state in _UP for state in states]
        card.put("gpu_nvlink_active_links", sum(active))
        for link, up in enumerate(active):
            card.put("gpu_nvlink_up", int(up), str(link))


def _state_by_call(card: CardPass, link: int) -> int | DriverError:
    try:
        return int(card.ask("DeviceGetNvLinkState", link))
    except DriverError as error:
        return error


def _unsupported(answer: int | DriverError) -> bool:
    return isinstance(answer, DriverError) and answer.outcome is Outcome.UNSUPPORTED


def _read_errors(card: CardPass, links: int) -> None:
    """Read the totals of every kind and, where wanted, the counters of each link."""
    with card.attempt("gpu_nvlink_errors_total"):
        requests = [
            (field, ALL_LINKS if per_link else SCOPE_GPU)
            for candidates in NVLINK_ERRORS.values()
            for field, per_link in candidates
        ]
        answers = dict(zip(requests, card.fields(requests), strict=True))
        per_link_fields: list[tuple[str, Field]] = []
        for kind, candidates in NVLINK_ERRORS.items():
            chosen = _first_known(candidates, answers)
            if chosen is None:
                continue
            field, per_link, answer = chosen
            card.put("gpu_nvlink_errors_total", answer, kind)
            if per_link:
                per_link_fields.append((kind, field))
        if "gpu_nvlink_errors_total" not in card.rows:
            card.absent("gpu_nvlink_errors_total")
    if card.wants("gpu_nvlink_link_errors_total"):
        with card.attempt("gpu_nvlink_link_errors_total"):
            _read_link_errors(card, links, per_link_fields)


def _first_known(
    candidates: tuple[tuple[Field, bool], ...],
    answers: dict[tuple[Field, int], int | DriverError],
) -> tuple[Field, bool, int | DriverError] | None:
    for field, per_link in candidates:
        answer = answers[field, ALL_LINKS if per_link else SCOPE_GPU]
        if not _unsupported(answer):
            return field, per_link, answer
    return None


def _read_link_errors(card: CardPass, links: int, kinds: list[tuple[str, Field]]) -> None:
    wanted = [(kind, field, link) for kind, field in kinds for link in range(links)]
    if not wanted:
        card.absent("gpu_nvlink_link_errors_total")
        return
    values = card.fields([(field, link) for _, field, link in wanted])
    for (kind, _, link), value in zip(wanted, values, strict=True):
        # A link that is not wired answers "not supported": nothing to say about it.
        if not isinstance(value, DriverError):
            card.put("gpu_nvlink_link_errors_total", value, str(link), kind)


def _read_traffic(card: CardPass) -> None:
    for family, candidates in _TRAFFIC:
        if not card.wants(family):
            continue
        with card.attempt(family):
            answers = card.fields([(field, ALL_LINKS) for field, _ in candidates])
            for (_, scale), answer in zip(candidates, answers, strict=True):
                if not _unsupported(answer):
                    card.put(family, answer, scale=scale)
                    break
            else:
                card.absent(family)
