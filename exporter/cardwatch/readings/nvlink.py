# SPDX-License-Identifier: Apache-2.0
"""NVLink: link states, error counters and traffic, over all links and per link.

Generations count different things under different ids; ``NVLINK_ERRORS`` lists
the candidates. Which of them a card supports is found once and kept, so that a
counter never changes its source while we look.
"""

from __future__ import annotations

from cardwatch.families import BY_NAME
from cardwatch.nvml import fields as f
from cardwatch.nvml.codes import NOT_SUPPORTED, DriverError, Outcome
from cardwatch.nvml.fields import ALL_LINKS, NVLINK_ERRORS, SCOPE_GPU, Field
from cardwatch.readings.card import CardPass

_FAMILIES = ("gpu_nvlink_active_links", "gpu_nvlink_errors_total", "gpu_nvlink_supported_links",
             "gpu_nvlink_transmit_bytes_total", "gpu_nvlink_receive_bytes_total",
             "gpu_nvlink_up", "gpu_nvlink_link_errors_total")  # fmt: skip
_LINK_ERRORS = "gpu_nvlink_link_errors_total"
_UP = (1, 2, 3)  # active, asleep, active without traffic
_STATES = (0, *_UP)
_TRAFFIC = (
    ("gpu_nvlink_transmit_bytes_total", ((f.NVLINK_DATA_TX_KIB, 1024), (f.NVLINK5_TX_BYTES, 1))),
    ("gpu_nvlink_receive_bytes_total", ((f.NVLINK_DATA_RX_KIB, 1024), (f.NVLINK5_RX_BYTES, 1))),
)
_TOTALS = tuple(
    (field, ALL_LINKS if per_link else SCOPE_GPU)
    for candidates in NVLINK_ERRORS.values()
    for field, per_link in candidates
)
_MAX_LINKS = 64
_LINKS = tuple(map(str, range(_MAX_LINKS)))


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
        errors = [state for state in states if isinstance(state, DriverError)]
        failed = next((error for error in errors if not _unsupported(error)), None)
        if len(errors) == links:
            raise failed or errors[0]
        odd = [state for state in states if isinstance(state, int) and state not in _STATES]
        card.put_all("gpu_nvlink_up", (
            ((link,), int(state in _UP))
            for link, state in zip(_LINKS, states)  # noqa: B905
            if state in _STATES or _unsupported(state)
        ))  # fmt: skip
        # A count without a link would read as a link that went down.
        if failed is not None:
            raise failed
        if odd:
            card.reject("gpu_nvlink_active_links", "gpu_nvlink_up")
        else:
            card.put("gpu_nvlink_active_links", sum(state in _UP for state in states))


def _state_by_call(card: CardPass, link: int) -> int | DriverError:
    try:
        return int(card.ask("DeviceGetNvLinkState", link))
    except DriverError as error:
        return error


def _unsupported(answer: int | DriverError) -> bool:
    return isinstance(answer, DriverError) and answer.outcome is Outcome.UNSUPPORTED


def _read_errors(card: CardPass, links: int) -> None:
    """Read the totals of every kind and, where wanted, the counters of each link."""
    with card.attempt("gpu_nvlink_errors_total", "gpu_nvlink_link_errors_total"):
        totals = dict(zip(_TOTALS, card.fields(_TOTALS), strict=True))
        # The header promises a sum over links for NVLink 5 only: elsewhere we add them up.
        unsummed = [
            field for (field, scope), total in totals.items()
            if scope == ALL_LINKS and _unsupported(total) and not card.lacks_field(field, links)
        ]  # fmt: skip
        by_link = _by_link(card, links, unsummed)
        totals |= {(field, ALL_LINKS): _sum(answers) for field, answers in by_link.items()}
        chosen = {kind: _first_known(candidates, totals)
                  for kind, candidates in NVLINK_ERRORS.items()}  # fmt: skip
        if not any(chosen.values()):
            card.absent("gpu_nvlink_errors_total")
        per_link_fields: dict[str, Field] = {}
        for kind, found in chosen.items():
            if found is not None:
                field, per_link, total = found
                card.put("gpu_nvlink_errors_total", total, kind)
                if isinstance(total, DriverError) and field not in by_link:
                    # Which id counts this kind is not certain while the newest one fails.
                    card.fault("gpu_nvlink_link_errors_total", total)
                elif per_link:
                    per_link_fields[kind] = field
        if not card.wants(_LINK_ERRORS):
            return
        if not per_link_fields:
            card.absent(_LINK_ERRORS)
        elif card.profile < BY_NAME[_LINK_ERRORS].profile:
            # Only links with errors are shown, and where the sum is 0 there is none.
            per_link_fields = {
                kind: field for kind, field in per_link_fields.items()
                if totals[field, ALL_LINKS] != 0
            }  # fmt: skip
        _read_link_errors(card, links, per_link_fields, by_link)


def _by_link(
    card: CardPass, links: int, fields: list[Field]
) -> dict[Field, list[int | DriverError]]:
    answers = iter(card.fields([(field, link) for field in fields for link in range(links)]))
    return {field: [next(answers) for _ in range(links)] for field in fields}


def _sum(answers: list[int | DriverError]) -> int | DriverError:
    """Add up the links that are wired; what failed on one link is the failure of the sum."""
    errors = [answer for answer in answers if isinstance(answer, DriverError)]
    failed = next((error for error in errors if not _unsupported(error)), None)
    if failed is not None:
        return failed
    if len(errors) == len(answers):
        return errors[0]
    return sum(answer for answer in answers if not isinstance(answer, DriverError))


def _first_known(
    candidates: tuple[tuple[Field, bool], ...],
    totals: dict[tuple[Field, int], int | DriverError],
) -> tuple[Field, bool, int | DriverError] | None:
    for field, per_link in candidates:
        total = totals[field, ALL_LINKS if per_link else SCOPE_GPU]
        if not _unsupported(total):
            return field, per_link, total
    return None


def _read_link_errors(
    card: CardPass,
    links: int,
    kinds: dict[str, Field],
    known: dict[Field, list[int | DriverError]],
) -> None:
    with card.attempt(_LINK_ERRORS):
        rest = _by_link(card, links, [field for field in kinds.values() if field not in known])
        for kind, field in kinds.items():
            # A link that is not wired answers "not supported": nothing to say about it.
            card.put_all(_LINK_ERRORS, (
                ((link, kind), value)
                for link, value in zip(_LINKS, (known | rest)[field])  # noqa: B905 - as many as there are
                if type(value) is int or not _unsupported(value)
            ))  # fmt: skip


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
