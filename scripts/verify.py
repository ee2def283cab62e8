#!/usr/bin/env python3
"""Computes the intervals and verdicts of a bundle again from its journal, without code of tollgate, as docs/method.md and
docs/claims.md state.

usage: verify.py BUNDLE.zip

Needs Python 3.11 and NumPy. Prints one line per disagreement. Exit status: 0 if everything agrees, 1 if something does not,
2 if the bundle cannot be read, 3 if everything agrees but something cannot be verified.
"""

import hashlib
import json
import math
import re
import sys
import zipfile
from collections import namedtuple
from functools import cache, reduce
from statistics import NormalDist

import numpy as np

CONFIDENCE, INTERVAL_ROUNDS = 0.95, 6
MAX_FAILED, MAX_LOST = 0.1, 0.2
EXTREME = sys.float_info.max / 4  # in place of an unknown value of a censored round
TOLERANCE = 1e-9
MAX_BYTES = 4 << 30  # of an entry
REPRODUCED, CONTRADICTED = "reproduced", "contradicted"
INCONCLUSIVE, NOT_MEASURED = "inconclusive", "not-measured"
INCOMPARABLE, UNMEASURABLE = "incomparable", "unmeasurable"
STATES = ("alone", "shared", "changed")  # of the core, by its SMT sibling
NORMAL = NormalDist()


# Statistics -----------------------------------------------------------------------------------------------------------

Interval = namedtuple("Interval", "low high kind coverage drift")
Estimate = namedtuple("Estimate", "median interval lag_1 mad minimum rounds")
Ratio = namedtuple("Ratio", "ratio interval lag_1 rounds lost")


class Lack(Exception):
    """Why there is no value: the result, whether more rounds may give one, and whether none was measured."""

    def __init__(self, kind=INCONCLUSIVE, few=False, unmeasured=False):
        super().__init__(kind)
        self.kind, self.few, self.unmeasured = kind, few or unmeasured, unmeasured


def rescaled(confidence, factor):
    """The two-sided probability of a normal deviate that is larger by a factor."""
    middle = (1 + confidence) / 2
    deviate = (math.inf if middle >= 1 else NORMAL.inv_cdf(middle)) * factor
    return 1 - math.erfc(deviate / math.sqrt(2))


@cache
def rank_coverage(n, rank):
    """The probability that the rank-th lowest and the rank-th highest of n values enclose the median."""
    below = sum(math.comb(n, k) for k in range(rank))
    return max(0.0, 1 - 2 * (below / 2**n))


@cache
def interval_rounds(confidence):
    """The smallest number of independent rounds whose extremes are an interval of this confidence."""
    return next(n for n in range(INTERVAL_ROUNDS, 10_001)
                if n == 10_000 or rank_coverage(n, 1) >= 1 - 2 * (1 - confidence))


def interpolated(ordered, confidence):
    """The interval of Hettmansperger and Sheather (1986), in Nyblom's form (1992)."""
    n, rank = len(ordered), 1
    while rank + 1 <= n // 2 and rank_coverage(n, rank + 1) >= confidence:
        rank += 1
    outer, inner = rank_coverage(n, rank), rank_coverage(n, rank + 1)
    share = min(max((outer - confidence) / (outer - inner), 0), 1)
    weight = (n - rank) * share / (rank + (n - 2 * rank) * share)
    at = min(rank, n - 1)
    # Exact for equal values.
    def between(outer, inner):
        return outer + weight * (inner - outer)
    return between(ordered[rank - 1], ordered[at]), between(ordered[n - rank], ordered[n - 1 - at])


def order_interval(ordered, inflation, confidence):
    """The interval of the median of sorted values, whose variance correlation increases by a factor."""
    n = len(ordered)
    if n == 1:
        return Interval(ordered[0], ordered[0], "single", 0.0, 0.0)
    extremes = rescaled(rank_coverage(n, 1), 1 / math.sqrt(inflation))
    if n < INTERVAL_ROUNDS or extremes < 1 - 2 * (1 - confidence):
        return Interval(ordered[0], ordered[-1], "range", extremes, 0.0)
    low, high = interpolated(ordered, rescaled(confidence, math.sqrt(inflation)))
    return Interval(low, high, "confidence", min(extremes, confidence), 0.0)


def are_correlated(n, inflation, confidence=CONFIDENCE):
    """Whether rounds would have an interval if they were independent, and have none."""
    needed, extremes = 1 - 2 * (1 - confidence), rank_coverage(n, 1)
    return n >= INTERVAL_ROUNDS and extremes >= needed > rescaled(extremes, 1 / math.sqrt(inflation))


def widened_if_correlated(interval, n, inflation, confidence):
    """In place of the range of correlated rounds, an interval that reaches beyond it by four times its width."""
    if interval.kind != "range" or not are_correlated(n, inflation, confidence):
        return interval
    reach = 4 * (interval.high - interval.low)
    return interval._replace(low=interval.low - reach, high=interval.high + reach, kind="confidence", coverage=confidence)


def lag_1(values):
    """The correlation of the normal scores of successive values, corrected for the bias of few rounds."""
    n = len(values)
    if n < INTERVAL_ROUNDS:
        return None
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts - 1) / 2
    scores = np.array([NORMAL.inv_cdf(rank / (n + 1)) for rank in middle])[group]
    squares = float(scores @ scores)
    if squares == 0:
        return None
    correlation = float(scores[:-1] @ scores[1:]) / squares
    return min(max(correlation + (1 + 4 * correlation) / n, -1.0), 0.95)


def inflation_of(correlation, n):
    """The factor by which the variance of the median of n values exceeds that of independent ones."""
    total, at_lag = 0.0, 1.0
    for lag in range(1, n):
        at_lag *= max(correlation or 0.0, 0.0)
        term = (1 - lag / n) * 2 / math.pi * math.asin(at_lag)
        if term <= 1e-9:
            break
        total += term
    return 1 + 2 * total


def including(interval, low, high):
    if interval.kind == "single":
        return interval
    return interval._replace(low=min(interval.low, low), high=max(interval.high, high))


def with_drift(interval, median, drift):
    if interval.kind == "single" or interval.low == interval.high:
        return interval
    def wider(width):
        return math.hypot(width, drift * median)
    low, high = median - wider(median - interval.low), median + wider(interval.high - median)
    return interval._replace(low=low, high=high, drift=drift)


def with_censored(interval, values, censored, inflation, confidence):
    """Includes the intervals of all values that the true ones may be; `censored` is (may be higher, may be lower)."""
    if not len(values) or not any(higher or lower for higher, lower in censored):
        return interval
    def end(side, extreme):
        replaced = sorted(extreme if may[side] else value for value, may in zip(values, censored))
        found = order_interval(replaced, inflation, confidence)[1 - side]
        return math.copysign(math.inf, found) if abs(found) > 1e100 else found
    return interval._replace(low=min(interval.low, end(1, -EXTREME)), high=max(interval.high, end(0, EXTREME)))


def median(values):
    return float(np.median(values))


def estimate(values, confidence=CONFIDENCE, resolution=0.0, drift=0.0, censored=(), widens=False):
    """The median of values in the order of their rounds, with its interval, which `widens` for claims; None without values."""
    if not values or not all(map(math.isfinite, values)):
        return None
    ordered, correlation = sorted(values), lag_1(values)
    centre, inflation = median(values), inflation_of(correlation, len(values))
    interval = order_interval(ordered, inflation, confidence)
    if widens:
        interval = widened_if_correlated(interval, len(values), inflation, confidence)
    interval = including(interval, centre - resolution, centre + resolution)
    interval = with_drift(interval, centre, drift)
    padded = [*censored, *[(False, False)] * (len(values) - len(censored))]
    interval = with_censored(interval, values, padded, inflation, confidence)
    mad = median([abs(value - centre) for value in values])
    return Estimate(centre, interval, correlation, mad, ordered[0], len(values))


def logarithms(pairs):
    if any(not (math.isfinite(one) and one > 0) for pair in pairs for one in pair):
        raise Lack()
    return [math.log(above) - math.log(below) for above, below in pairs]


def paired_ratio(pairs, confidence=CONFIDENCE, resolution=0.0, censored=(), lost=None, widens=False):
    """The ratio of pairs in the order of their rounds, with its interval, which `widens` for claims."""
    if not pairs:
        raise Lack(few=True)
    logs = logarithms(pairs)
    correlation = lag_1(logs)
    inflation, centre = inflation_of(correlation, len(logs)), math.exp(median(logs))
    interval = order_interval(sorted(logs), inflation, confidence)
    if widens:
        interval = widened_if_correlated(interval, len(logs), inflation, confidence)
    interval = interval._replace(low=math.exp(interval.low), high=math.exp(interval.high))
    interval = including(interval, centre * math.exp(-resolution), centre * math.exp(resolution))
    if any(map(any, censored)):
        on_log = interval._replace(low=math.log(interval.low), high=math.log(interval.high))
        wider = with_censored(on_log, logs, censored, inflation, confidence)
        def end(new, old, kept):
            return kept if new == old else new if math.isinf(new) else math.exp(new)
        interval = interval._replace(low=end(wider.low, on_log.low, interval.low),
                                     high=end(wider.high, on_log.high, interval.high))
    return Ratio(centre, interval, correlation, len(pairs), lost or {})


def unpaired_ratio(numerator, denominator):
    """The ratio of two independent sets: Hodges and Lehmann, with the interval of Mann and Whitney."""
    logs = logarithms([(above, below) for above in numerator for below in denominator])
    differences, one, other = sorted(logs), len(numerator), len(denominator)
    counts = [1.0] + [0.0] * (one * other)
    for factor in range(1, one + 1):
        for at in range(len(counts) - 1, other + factor - 1, -1):
            counts[at] -= counts[at - other - factor]
        for at in range(factor, len(counts)):
            counts[at] += counts[at - factor]
    tails = list(np.cumsum(counts) / sum(counts))
    excluded = next((at for at, tail in enumerate(tails) if 2 * tail > 1 - CONFIDENCE), len(tails))
    rank, kind = (excluded, "confidence") if excluded else (1, "range")
    ends = math.exp(differences[rank - 1]), math.exp(differences[-rank])
    interval = Interval(*ends, kind, max(0.0, 1 - 2 * tails[rank - 1]), 0.0)
    return Ratio(math.exp(median(differences)), interval, None, min(one, other), {})


def sign_test(pairs):
    """The two-sided p-value that a ratio is 1; correlation raises it as it widens the interval."""
    logs, n = logarithms(pairs), len(pairs)
    most = max(sum(log > 0 for log in logs), sum(log < 0 for log in logs))
    p = min(2 * sum(math.comb(n, k) for k in range(most, n + 1)) / 2**n, 1.0) if most else 1.0
    inflation = inflation_of(lag_1(logs), n)
    return 1 - rescaled(1 - p, 1 / math.sqrt(inflation)) if inflation > 1 else p


def holm(p_values, level):
    rejected = [False] * len(p_values)
    for smaller, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[index] > level / (len(p_values) - smaller):
            break
        rejected[index] = True
    return rejected


def rate_of_floor(interval):
    """The distance of the further end of a ratio of twins from 1, as a logarithm."""
    return max(abs(math.log(interval.low)), abs(math.log(interval.high)))


def clock_drift(clocks):
    """The share by which two core clocks differ at most in 95% of cases, of at most 200 evenly spaced ones."""
    ordered = sorted(math.log(clock) for clock in clocks)
    count = min(200, len(ordered))
    moments = np.array([ordered[at * len(ordered) // count] for at in range(count)])
    above, below = np.triu_indices(count, 1)
    differences = moments[below] - moments[above]
    return float(np.quantile(differences, CONFIDENCE)) if len(differences) else 0.0


# Samples --------------------------------------------------------------------------------------------------------------

Observation = namedtuple("Observation", "value resolution cls session state censored")


def point_of(levels):
    """A point as a sorted tuple of (factor, level), so that points have the order of the program."""
    return tuple(sorted((factor, str(level)) for factor, level in levels.items()))


def filter_of(levels):
    many = (levels or {}).items()
    return {factor: [str(one) for one in (level if isinstance(level, list) else [level])] for factor, level in many}


def matches(wanted, point):
    levels = dict(point)
    return all(levels.get(factor) in permitted for factor, permitted in wanted.items())


def number(level):
    """A level as a number, if it is one or a number of bytes."""
    if level is None:
        return None
    if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", level):
        return float(level)
    found = re.fullmatch(r"\s*([\d.]+)\s*(TiB|GiB|MiB|KiB|B)\s*", level)
    return float(found[1]) * 1024 ** ["B", "KiB", "MiB", "GiB", "TiB"].index(found[2]) if found else None


def differing(point, other):
    levels = dict(other)
    return sum(levels.get(factor) != level for factor, level in point)


def is_valid(sample):
    return "error" not in sample and "void" not in sample


def error_kind(sample):
    return sample.get("error", {}).get("kind")


def is_absence(sample):
    return error_kind(sample) in ("unavailable", "unsupported")


def has_failed(sample):
    return "error" in sample and not is_absence(sample) and error_kind(sample) != "void"


def clock_of(sample, metric):
    """The clock of what measured a metric, and its environment: those of the role that has it, if roles share the sample."""
    own = sample.get("clock"), sample["environment"]
    for role, part in sample.get("parts", {}).items():
        if role != "guest" and metric in part.get("values", {}):
            if part["environment"] != sample["environment"]:
                return part.get("clock"), part["environment"]
            return part.get("clock", own[0]), own[1]
    return own


def core_hertz(clock):
    return (clock["core_before"] + clock["core_after"]) / 2


def recorded(sample, metric, unit):
    """The value of a metric in its own unit, in ticks or in core cycles; the sample may be void."""
    value = sample.get("values", {}).get(metric)
    if value is None or unit == "own":
        return value
    clock, _ = clock_of(sample, metric)
    if clock is None:
        return None
    return value * (clock["tsc_hertz"] if unit == "ticks" else core_hertz(clock)) / 1e9


def value_of(sample, metric, unit):
    return recorded(sample, metric, unit) if is_valid(sample) else None


def limit_of(sample, metric):
    for name, limit in (("capped", "search"), ("limited_by_instrument", "instrument")):
        if metric in str(sample.get("covariates", {}).get(name, "")).split(" "):
            return limit
    return None


def round_trip(sample):
    found = number(str(sample.get("covariates", {}).get("round_trip_ns", "")))
    return found if found and found > 0 else None


def gap_limits(ordered, least, between):
    """The limits between groups of round trips: the middle of gaps of a factor of 1.5 or more."""
    places = range(least, len(ordered) - least - between + 1)
    ratios = [(ordered[at + between] / ordered[at - 1], at) for at in places]
    widest, below = max(ratios, default=(0, 0))
    if widest < 1.5:
        return []
    limit = math.sqrt(ordered[below - 1] * ordered[below + between])
    return (gap_limits(ordered[:below], least, between) + [limit]
            + gap_limits(ordered[below + between:], least, between))


class Samples:
    """The samples of an experiment in an environment and, if factors are chosen at boot, in its other boots."""

    def __init__(self, run, experiment, environment):
        self.run, self.experiment, self.environment = run, experiment, environment
        record = run.record
        self.declared = record["experiments"].get(experiment)
        self.machine = record["environments"].get(environment)
        self.boots = self.counted_boots()
        self.of_machine = [one for one in run.samples if one["environment"] in self.boots]
        self.all = [one for one in self.of_machine if one["experiment"] == experiment]
        has_boots = len(set(self.boots.values())) > 1
        measured = {one["point"] for one in self.all if is_valid(one)} if has_boots else set()
        self.all = [one for one in self.all if not (is_absence(one) and one["point"] in measured)]
        self.last, self.by_boot = {}, {}
        for sample in self.all:
            if "error" in sample and sample["point"] in measured:
                continue
            item, boot = (sample["point"], sample.get("twin", False)), self.boots[sample["environment"]]
            rounds = self.last.setdefault(item, {})
            if has_boots:
                self.by_boot.setdefault(boot, {}).setdefault(item, {})[sample["round"]] = sample
                for earlier in [k for k, v in rounds.items() if self.boots[v["environment"]] != boot]:
                    del rounds[earlier]
            rounds[sample["round"]] = sample
        self.failures, self.found = {}, {}
        for sample in filter(has_failed, self.all):
            item = sample["point"], sample.get("twin", False)
            self.failures.setdefault(item, set()).add(sample["round"])
        self.limits = self.class_limits()
        self.best_rate = self.rate_alone()
        valid = (one for one in self.of_machine if is_valid(one) and "clock" in one)
        self.drift = clock_drift([core_hertz(one["clock"]) for one in valid])

    def counted_boots(self):
        """The environments that count together, each with the ID of its boot."""
        environments, this = self.run.record["environments"], self.machine
        if this is None:
            return {self.environment: self.environment}
        def stable(one):
            one = json.loads(json.dumps(one))
            drop = ("tsc_hertz", "memory", "capabilities", "boot_id", "mitigation_words", "vulnerabilities")
            one = {key: value for key, value in one.items() if key not in drop}
            one["cpu"].pop("features", None)
            for node in one["topology"]["nodes"]:
                node.pop("memory", None)
            return one
        boots = {self.environment: this["boot_id"]}
        if self.declared and self.declared.get("blocking"):
            for name, other in environments.items():
                if other["boot_id"] != this["boot_id"] and stable(other) == stable(this):
                    boots[name] = other["boot_id"]
        return boots

    def class_limits(self):
        trips = sorted(round_trip(one) for one in self.of_machine
                       if is_valid(one) and round_trip(one) and "smt_siblings" not in one.get("covariates", {}))
        least = max(INTERVAL_ROUNDS, math.ceil(0.05 * len(trips)))
        found = gap_limits(trips, least, len(trips) // 100)
        return found or ("near" if not trips or median(trips) < 250 else "far")

    def cls(self, sample):
        trip = round_trip(sample)
        if trip is None:
            return None
        if "smt_siblings" in sample["covariates"]:
            return "same"
        if isinstance(self.limits, str):
            return self.limits
        return "near" if trip < self.limits[0] else "far" if trip >= self.limits[-1] else "middle"

    def rate_alone(self):
        """The lowest of the highest rates of adds on which at least three samples and 1% agree within 2%."""
        return self.best_of(one["clock"] for one in filter(is_valid, self.of_machine) if "clock" in one)

    @staticmethod
    def best_of(clocks):
        rates = []
        for clock in clocks:
            ends = [clock.get(name) for name in ("issue_before", "issue_after")]
            rates += [max(end for end in ends if end is not None)] if any(e is not None for e in ends) else []
        rates.sort(reverse=True)
        agreeing = max(3, math.ceil(0.01 * len(rates)))
        for at in range(len(rates) - agreeing + 1):
            if rates[at + agreeing - 1] >= 0.98 * rates[at]:
                return rates[at + agreeing - 1]
        return rates[0] if rates else 0.0

    def state(self, sample, metric):
        clock, environment = clock_of(sample, metric)
        ends = [(clock or {}).get(name) for name in ("issue_before", "issue_after")]
        if None in ends:
            return None
        best = self.best_rate
        if environment != sample["environment"]:
            parts = (part for one in filter(is_valid, self.of_machine) for part in one.get("parts", {}).values())
            best = self.best_of(part["clock"] for part in parts if part["environment"] == environment and "clock" in part)
        before, after = (end >= 0.95 * best for end in ends)
        return "alone" if before and after else "changed" if before or after else "shared"

    def metric(self, name):
        return self.run.record["metrics"].get(self.experiment.split("/")[0], {}).get(name)

    def resolution(self, sample, metric, unit):
        record = self.metric(metric) or {}
        if record.get("rate_of") is None:
            found = value_of(sample, "resolution", unit) if record.get("unit") == "ns" else None
            return found or 0.0
        step, time = value_of(sample, "resolution", "own"), value_of(sample, record["rate_of"], "own")
        return step / time * abs(value_of(sample, metric, unit)) if step and time and time > 0 else 0.0

    def censored(self, sample, metric):
        better = (self.metric(metric) or {}).get("better")
        return (False, False) if limit_of(sample, metric) is None else (better != "lower", better != "higher")

    def observe(self, samples, metric, unit):
        rounds = {}
        for number_, sample in sorted(samples.items()):
            value = value_of(sample, metric, unit)
            if value is not None:
                rounds[number_] = Observation(
                    value, self.resolution(sample, metric, unit), self.cls(sample), sample["session"],
                    self.state(sample, metric), self.censored(sample, metric))
        return rounds

    def observed(self, metric, unit):
        """The values of points and twins by round, those of each boot, and the drift that widens their intervals."""
        if (metric, unit) in self.found:
            return self.found[metric, unit]
        points, twins, boots = {}, {}, {}
        for (point, twin), samples in sorted(self.last.items()):
            rounds = self.observe(samples, metric, unit)
            if rounds:
                (twins if twin else points)[point] = rounds
        for _, items in sorted(self.by_boot.items()):
            for (point, twin), samples in sorted(items.items()):
                rounds = self.observe(samples, metric, unit)
                if not twin:
                    boots.setdefault(point, []).extend([rounds] if rounds else [])
        name = (self.metric(metric) or {}).get("unit", "")
        depends = unit != "cycles" and (name in ("ns", "us", "ms", "s", "ticks", "Hz") or name.endswith("/s"))
        self.found[metric, unit] = points, twins, boots, self.drift if depends else 0.0
        return self.found[metric, unit]

    def round_counts(self, point, twin=False):
        """The numbers of measured, failed and void rounds; a round that failed once has failed."""
        rounds = {}
        for number_, sample in self.last.get((point, twin), {}).items():
            if not is_absence(sample):
                rounds[number_] = "void" if "void" in sample or error_kind(sample) == "void" else "measured"
        rounds.update(dict.fromkeys(self.failures.get((point, twin), ()), "failed"))
        found = list(rounds.values())
        return found.count("measured"), found.count("failed"), found.count("void")

    def fails_too_often(self, point, twin=False):
        measured, failed, _ = self.round_counts(point, twin)
        return failed > MAX_FAILED * (measured + failed)

    def other_environments(self, is_wanted):
        """The other environments with valid or failed samples, each with its number of rounds."""
        rounds = {}
        for sample in self.run.samples:
            if (sample["experiment"] == self.experiment and sample["environment"] not in self.boots
                    and is_wanted(sample["point"]) and (is_valid(sample) or has_failed(sample))):
                rounds.setdefault(sample["environment"], set()).add(sample["round"])
        return {name: len(found) for name, found in rounds.items()}


# Pairs and floors -----------------------------------------------------------------------------------------------------

def state_counts(states):
    states = [state or "alone" for state in states]
    return {state: states.count(state) for state in STATES}


def total(counts):
    return sum(counts.values())


def chosen_state(groups):
    """The state in which groups of rounds are judged; None if any."""
    judged = [group for group in groups if total(group) >= INTERVAL_ROUNDS]
    for state in ("alone", "shared"):
        if judged and all(group[state] >= min(total(group), INTERVAL_ROUNDS) for group in judged):
            return state
    def needs_both(group):
        each = group["alone"], group["shared"]
        return sum(each) >= INTERVAL_ROUNDS and max(each) < INTERVAL_ROUNDS
    if all(map(needs_both, judged)):
        return None
    return max(STATES, key=lambda state: min(group[state] for group in judged))


def counts_in(state, chosen):
    return chosen is None or (state or "alone") == chosen


def in_state(rounds, chosen):
    counts = state_counts(one.state for one in rounds.values())
    is_mixed = chosen is None and counts["alone"] + counts["shared"] >= INTERVAL_ROUNDS
    return {at: one for at, one in rounds.items()
            if counts_in(one.state, chosen) and not (is_mixed and one.state == "changed")}


def alike(rounds):
    return in_state(rounds, chosen_state([state_counts(one.state for one in rounds.values())]))


def share_of(one):
    if one.resolution == 0:
        return 0.0
    return one.resolution / abs(one.value) if one.value else math.inf


def ratio_censored(above, below):
    return above[0] or below[1], above[1] or below[0]


def pair_of(above, below):
    """The pair of two observations of a round, or why they are not compared."""
    if above is None or below is None:
        return "missing"
    if above.session != below.session:
        return "other_session"
    if above.cls and below.cls and above.cls != below.cls:
        return "other_class"
    if "changed" in (above.state, below.state) or (above.state and below.state and above.state != below.state):
        return "other_sharing"
    return above.value, below.value, above.state or below.state, ratio_censored(above.censored, below.censored)


class Pairing:
    def __init__(self, above, below):
        self.pairs = [pair_of(above.get(at), below.get(at)) for at in sorted(above.keys() | below.keys())]
        coarsest = [max(map(share_of, side.values()), default=0.0) for side in (above, below)]
        self.resolution = math.hypot(*coarsest)
        self.counts = state_counts(pair[2] for pair in self.pairs if not isinstance(pair, str))

    def in_state(self, chosen):
        """The pairs in a state, and the numbers of lost rounds by cause."""
        kept, lost = [], {"missing": 0, "other_class": 0, "other_sharing": 0, "other_session": 0}
        for pair in self.pairs:
            if not isinstance(pair, str) and counts_in(pair[2], chosen):
                kept.append(pair)
            else:
                lost[pair if isinstance(pair, str) else "other_sharing"] += 1
        return kept, lost

    def ratio(self, chosen, confidence=CONFIDENCE, as_recorded=False, widens=False):
        kept, lost = self.in_state(chosen)
        censored = [] if as_recorded else [pair[3] for pair in kept]
        return paired_ratio([pair[:2] for pair in kept], confidence, self.resolution, censored, lost, widens)

    def sign_test(self, chosen):
        def sure(pair):
            may_cross = pair[3][1] if pair[0] > pair[1] else pair[3][0]
            return (1.0, 1.0) if may_cross else pair[:2]
        return sign_test([sure(pair) for pair in self.in_state(chosen)[0]])


def twin_ratios(points, twins):
    found = {}
    for point, rounds in twins.items():
        if point in points:
            pairing = Pairing(points[point], rounds)
            try:
                found[point] = pairing.ratio(chosen_state([pairing.counts]), as_recorded=True)
            except Lack:
                pass
    return found


def floors_of(points, twins):
    """The noise floors: (point, state, floor) of each pair of twins with 6 rounds in the state."""
    floors = []
    for point, rounds in twins.items():
        for state in (None, "alone", "shared"):
            try:
                ratio = Pairing(points.get(point, {}), rounds).ratio(state, as_recorded=True)
            except Lack:
                continue
            if point in points and ratio.rounds >= INTERVAL_ROUNDS:
                floors.append((point, state, rate_of_floor(ratio.interval)))
    return floors


def near_floor(floors, points, state):
    """The highest of the floors of the nearest twins of each point; None without twins in this state."""
    of_state = [one for one in floors if state is None or one[1] == state]
    found = []
    for point in points:
        nearest = min((differing(one[0], point) for one in of_state), default=None)
        found += [one[2] for one in of_state if differing(one[0], point) == nearest]
    return max(found, default=None)


# Verdicts -------------------------------------------------------------------------------------------------------------

def both(one, other):
    """The result of two conditions that must both be true."""
    for kind in (CONTRADICTED, UNMEASURABLE):
        if kind in (one, other):
            return kind
    return other if one == REPRODUCED else one


class Value:
    """A measured value with its interval and result; `few` if more rounds may decide it. `sides` are the points that it is
    of: one list, two of a ratio (of the best of several points, all of them), none if it is of all samples."""

    def __init__(self, kind, value=None, interval=None, rounds=0, cls=None, few=False, below_floor=False, sides=()):
        self.kind, self.value, self.rounds, self.cls = kind, value, rounds, cls
        self.sides, self.baselines = sides, []
        self.interval = interval if rounds > 1 else None
        self.few, self.below_floor, self.unmeasured = few, below_floor, False


class Judgement:
    def __init__(self, values, kind=None, few=False):
        kinds = [one.kind for one in values]
        self.values, self.few = values, few or any(one.few for one in values)
        self.kind = kind or (reduce(both, kinds) if kinds else INCONCLUSIVE)


def missing(lack):
    value = Value(lack.kind, few=lack.few)
    value.unmeasured = lack.unmeasured
    return value


def inside(at_least, at_most, low, high, is_clear=lambda bound: True):
    results = []
    if at_least is not None:
        results.append((low >= at_least and is_clear(at_least), high < at_least and is_clear(at_least)))
    if at_most is not None:
        results.append((high <= at_most and is_clear(at_most), low > at_most and is_clear(at_most)))
    kinds = [REPRODUCED if ins else CONTRADICTED if out else INCONCLUSIVE for ins, out in results]
    return reduce(both, kinds) if kinds else INCONCLUSIVE


def within_bounds(value, interval, bounds, floor):
    """Whether an interval is inside or outside bounds, and further from each than the noise floor."""
    def is_clear(bound):
        if floor is None:
            return True
        quotient = value / bound if bound else math.copysign(math.inf, value) if value else math.nan
        return quotient <= 0 or abs(math.log(quotient)) >= floor
    return inside(*bounds, interval.low, interval.high, is_clear)


def resolve(ratio, floor):
    """'higher', 'lower', 'below-floor' or 'unresolved'."""
    low, high = ratio.interval.low, ratio.interval.high
    if ratio.interval.kind != "confidence" or low <= 1 <= high or floor is None:
        return "unresolved"
    if abs(math.log(ratio.ratio)) < floor:
        return "below-floor"
    return "higher" if ratio.ratio > 1 else "lower"


def verdict_of(resolution):
    return {"higher": REPRODUCED, "lower": CONTRADICTED}.get(resolution, INCONCLUSIVE)


def inverted(ratio):
    def inverse(end):
        return -end if math.isinf(end) else 1 / end
    interval = ratio.interval._replace(low=inverse(ratio.interval.high), high=inverse(ratio.interval.low))
    return ratio._replace(ratio=1 / ratio.ratio, interval=interval)


def weigh_lost(kind, lost, rounds, with_lost):
    """A result that many lost rounds would change is open; `with_lost` gives the result with them, or None."""
    if lost <= MAX_LOST * rounds:
        return kind
    other = with_lost()
    return kind if other is None or kind == INCONCLUSIVE or other == kind else INCONCLUSIVE


def most_lost(counts):
    """The numbers of lost and of all rounds with the largest share of lost ones."""
    found = (0, 0)
    for lost, rounds in counts:
        if lost / max(rounds, 1) >= found[0] / max(found[1], 1):
            found = lost, rounds
    return found


class Paired:
    """The ratio of two sides: of two points, of the best of several, or of two overheads."""

    def __init__(self, ratio, above, below, sides, state, lost, with_lost, needed=None, baselines=None):
        self.ratio, self.above, self.below, self.sides, self.state = ratio, above, below, sides, state
        self.lost, self.with_lost, self.needed, self.baselines = lost, with_lost, needed, baselines

    def points(self):
        points = [self.above, self.below, *(self.baselines or [])]
        return points + [one for side in self.sides for one in side if one not in points]


def lost_of(ratio):
    lost = sum(ratio.lost.values())
    return lost, ratio.rounds + lost


def ratio_of_all(above, below, confidence=CONFIDENCE):
    try:
        pairs = [(above[at].value, below[at].value) for at in sorted(above.keys() & below.keys())]
        return paired_ratio(pairs, confidence, widens=True)
    except Lack:
        return None


def unmet(setup, machine):
    """Whether a machine lacks a property of a setup."""
    if machine is None:
        return any(setup.get(name) not in (None, []) for name in ("cpu", "capability", "nic", "hypervisor"))
    cpu = machine["cpu"]
    vendor = {"GenuineIntel": "Intel", "AuthenticAMD": "AMD"}.get(cpu["vendor"], cpu["vendor"])
    family = f"{vendor} family {cpu['family']}"
    is_virtual = cpu.get("hypervisor") is not None or machine["emulated"]
    return ((setup.get("cpu") and not {family, f"{family} model {cpu['model']}"} & set(setup["cpu"]))
            or (setup.get("capability") and setup["capability"] not in machine["capabilities"])
            or (setup.get("nic") and setup["nic"] not in machine["nics"])
            or (setup.get("hypervisor") is not None and setup["hypervisor"] != is_virtual))


class Claim:
    """A claim as the bundle declares it."""

    def __init__(self, declared, where=None):
        self.declared = declared
        self.experiment, self.needed = declared["experiment"], declared["rounds"]
        self.where = where if where is not None else filter_of(declared["where"])
        self.published, self.cls = declared["published"], declared["class"]
        self.expect = declared["expect"] or {}
        self.kind = self.expect.get("kind")
        self.bounds = self.expect.get("at_least"), self.expect.get("at_most")

    def sides(self):
        expect = self.expect
        if self.kind == "ranking":
            return [filter_of(one) for one in expect["ranking"]]
        if self.kind != "ratio":
            return []
        of, to = filter_of(expect["of"]), filter_of(expect["to"])
        sides = [of, to] + ([filter_of(expect["limit"])] if expect["limit"] else [])
        for side, baseline in zip((of, to), expect["baselines"] or []):
            sides.append({**side, **filter_of(baseline)})
        return sides

    def is_about(self, point):
        sides = self.sides()
        return matches(self.where, point) and (not sides or any(matches(side, point) for side in sides))


class Evidence:
    """The values that a claim is judged by, in one environment; `parts` are those of each class of cores."""

    def __init__(self, claim, samples):
        self.claim, self.samples = claim, samples
        experiment = samples.declared
        self.metric = claim.declared["metric"] or (experiment and experiment["metric"])
        record = samples.metric(self.metric) if self.metric else None
        if record is None:
            raise Lack()
        published = claim.published["unit"] if claim.published else record["unit"]
        self.unit = published if published in ("ticks", "cycles") and published != record["unit"] else "own"
        if self.unit != "own" and record["unit"] != "ns":
            raise Lack()
        self.better = record["better"]
        planned = [point_of(one) for name in ("points", "skipped") for one in (experiment or {}).get(name, [])]
        sampled = [point for point, twin in samples.last if not twin]
        self.known = sorted({point for point in planned + sampled if claim.is_about(point)})
        everything = samples.observed(self.metric, self.unit)
        self.cls, self.others, self.parts = None, {}, []
        if claim.cls:
            self.restrict(claim.cls, everything)
            return
        self.set_values(everything)
        classes = {one.cls for rounds in self.points.values() for one in rounds.values() if one.cls}
        for cls in sorted(classes, key=["same", "near", "middle", "far"].index):
            part = object.__new__(Evidence)
            part.__dict__.update(self.__dict__)
            part.restrict(cls, everything)
            self.parts.append(part)

    def restrict(self, cls, everything):
        """Keeps the rounds of a class; rounds without a class belong to each, unless the claim names one."""
        def is_of_class(one):
            return one.cls == cls if one.cls else self.claim.cls is None
        def kept(side):
            found = {point: {at: one for at, one in rounds.items() if is_of_class(one)} for point, rounds in side.items()}
            return {point: rounds for point, rounds in found.items() if rounds}
        points, twins, boots, drift = everything
        self.others = {point: {at for at, one in rounds.items() if not is_of_class(one)} for point, rounds in points.items()}
        boots = {point: [one for one in (kept({0: rounds}).get(0) for rounds in each) if one] for point, each in boots.items()}
        self.cls, self.parts = cls, []
        self.set_values((kept(points), kept(twins), {point: each for point, each in boots.items() if each}, drift))

    def set_values(self, everything):
        points, twins, self.boots, self.drift = everything
        floors = floors_of(points, twins)
        self.floors = [one for one in floors if not self.samples.fails_too_often(one[0], True)]
        self.points = {point: rounds for point, rounds in points.items() if matches(self.claim.where, point)}
        self.twins = {point: rounds for point, rounds in twins.items() if matches(self.claim.where, point)}

    # Missing points

    def without_values(self, is_wanted):
        for point in self.known:
            if point not in self.points and is_wanted(point):
                rounds = self.samples.last.get((point, False), {})
                yield rounds[max(rounds)] if rounds else None

    def is_of_other_class(self, sample):
        point = sample["point"]
        return is_valid(sample) and bool(self.others.get(point)) and point not in self.points

    def lack(self, is_wanted):
        """Why none of some points has a value."""
        found = list(self.without_values(is_wanted))
        for sample in found:
            if sample is not None and not is_absence(sample) and not (self.claim.cls and self.is_of_other_class(sample)):
                return Lack(few=bool(self.cls) and self.is_of_other_class(sample))
        if found and all(sample is not None for sample in found):
            few = bool(self.cls) and self.is_of_other_class(found[0])
            return Lack(UNMEASURABLE, few)
        return Lack(unmeasured=True)

    def missing(self, is_wanted):
        """Whether some points have no value although the machine may give one, as a Lack, and the number left out."""
        lack, left_out = None, 0
        for sample in self.without_values(is_wanted):
            if sample is not None and is_absence(sample):
                left_out += 1
            elif lack is None:
                lack = Lack(few=sample is None or bool(self.cls) and self.is_of_other_class(sample))
        return lack, left_out

    def unknown_levels(self, wanted):
        for factor, levels in wanted.items():
            for level in levels:
                if not any(dict(point).get(factor) == level for point in self.known):
                    yield factor, level

    def lacks_levels(self):
        return any(number(level) is not None for _, level in self.unknown_levels(self.claim.where))

    def side(self, wanted, combination):
        """The points of a side, why one that may be better has no value, and the number left out."""
        free = {factor: level for factor, level in combination.items() if len(wanted.get(factor, [])) != 1}
        def is_wanted(point):
            return matches(wanted, point) and free.items() <= dict(point).items()
        points = [point for point in self.points if is_wanted(point)]
        if not points:
            raise self.lack(is_wanted)
        lack, left_out = self.missing(is_wanted)
        for factor, level in self.unknown_levels(wanted):
            if level in self.claim.where.get(factor, [level]):
                lack = lack or Lack(few=True)
        return points, lack, left_out

    def combinations(self):
        each, wanted = self.claim.expect["each"], self.compared_filters()
        if not each:
            return [{}]
        def free(levels, one):
            return tuple((factor, level) for factor, level in levels if len(one.get(factor, [])) != 1)
        def of(one):
            found = set()
            for point in self.known:
                levels = dict(point)
                if matches(one, point) and all(factor in levels for factor in each):
                    found.add(free(sorted((factor, levels[factor]) for factor in each), one))
            return found
        sets = [(one, of(one)) for one in wanted]
        everywhere = next((found for one, found in sets if all(len(one.get(f, [])) != 1 for f in each)), None)
        everywhere = of({}) if everywhere is None else everywhere
        return [dict(levels) for levels in sorted(everywhere)
                if all(free(levels, one) in found for one, found in sets)]

    def compared_filters(self):
        if self.claim.kind == "ratio":
            return [filter_of(self.claim.expect[name]) for name in ("of", "to")]
        return self.claim.sides() if self.claim.kind == "ranking" else []

    def open_factors(self, points, named=()):
        levels = {}
        for point in points:
            for factor, level in point:
                levels.setdefault(factor, set()).add(level)
        return [factor for factor, found in levels.items() if len(found) > 1 and factor not in named]

    def require_fixed(self, combination, named):
        points = [point for point in self.known if combination.items() <= dict(point).items()]
        if self.open_factors(points, named):
            raise Lack()

    # What weakens a result

    def confidence(self, rounds):
        """The coverage of an interval that the user may have seen after earlier sessions."""
        sessions = sorted(one.session for one in rounds.values())[max(self.claim.needed - 1, 0):]
        known = set(self.known)
        others = self.samples.other_environments(lambda point: point in known)
        looks = max(len(set(sessions)), 1) + sum(count >= self.claim.needed for count in others.values())
        return 1 - (1 - CONFIDENCE) / looks

    def fails(self, point):
        twins = [point_of(one) for one in (self.samples.declared or {}).get("twins", [])]
        return self.samples.fails_too_often(point) or (point in twins and self.samples.fails_too_often(point, True))

    def has_no_floor(self, points, state):
        if self.claim.needed < INTERVAL_ROUNDS:
            return False
        twins = [point_of(one) for one in (self.samples.declared or {}).get("twins", [])]
        return (any(self.samples.fails_too_often(twin, True) for twin in twins)
                or near_floor(self.floors, points, state) is None)

    def lacks_floor_rounds(self, points, state):
        """Whether the lack of a floor is one of rounds, not of failures."""
        twins = [point_of(one) for one in (self.samples.declared or {}).get("twins", [])]
        return self.has_no_floor(points, state) and not any(self.samples.fails_too_often(one, True) for one in twins)

    def comparable(self, kind, rounds, points, states):
        """Weakens a result by too few rounds, by failed rounds and without a floor; also returns whether rounds lack."""
        few = rounds < self.claim.needed
        if few or any(map(self.fails, points)) or any(self.has_no_floor(points, state) for state in states):
            kind = INCONCLUSIVE
        first = next((state for state in states if self.has_no_floor(points, state)), "none")
        return kind, few or (first != "none" and self.lacks_floor_rounds(points, first))

    def require_interval(self, kind, found):
        """Weakens a result without an interval; also returns whether the rounds are so correlated that it is wide."""
        if found.lag_1 is None or self.claim.needed < INTERVAL_ROUNDS:
            return kind, False
        kind = INCONCLUSIVE if found.interval.kind == "range" else kind
        return kind, are_correlated(found.rounds, inflation_of(found.lag_1, found.rounds))

    def class_of(self, *rounds):
        return self.cls if self.cls and any(one.cls for each in rounds for one in each.values()) else None

    # Judgements

    def judge(self):
        claim = self.claim
        if claim.kind is None:
            return self.judge_published() if claim.published else []
        if not self.known:
            return [Judgement([missing(Lack(unmeasured=True))])]
        if claim.kind == "value":
            return [self.by_class(lambda part, point=point: Judgement([part.point_value(point, claim.bounds)]))
                    for point in self.known]
        if claim.kind == "every-sample":
            return [self.judge_every_sample()]
        if claim.kind == "some-sample":
            return [self.judge_some_sample()]
        if claim.kind == "twins-differ-at-most":
            found = [self.by_class(lambda part, point=point: Judgement([part.twin_value(point)])) for point in self.twins]
            lack = self.lack(lambda _: True) if not self.points else Lack(few=True)
            return found or [Judgement([missing(lack)])]
        if claim.kind == "rounds-differ-at-most":
            return [self.by_class(lambda part, point=point: part.guarded(part.spread_value, point)) for point in self.known]
        judges = {"ratio": "judge_relative" if claim.expect.get("baselines") else "judge_ratio",
                  "ranking": "judge_ranking", "winner-changes": "judge_winner", "shape": "judge_shape"}
        if claim.kind not in judges:
            raise NotImplementedError(claim.kind)
        if any(not any(matches(one, point) for point in self.known) for one in self.compared_filters()):
            return [Judgement([missing(Lack(unmeasured=True))])]
        combinations = self.combinations()
        if not combinations:
            return [Judgement([missing(Lack())])]
        def judge(part, combination):
            try:
                return getattr(part, judges[claim.kind])(combination)
            except Lack as lack:
                return Judgement([missing(lack)])
        return [self.by_class(lambda part, at=at: judge(part, at)) for at in combinations]

    def guarded(self, judge, *arguments):
        try:
            return Judgement([judge(*arguments)])
        except Lack as lack:
            return Judgement([missing(lack)])

    def by_class(self, judge):
        """Judges the rounds of each class; those with too few rounds do not count unless all have."""
        judged = [judge(part) for part in self.parts]
        measured = [one for each in judged for one in each.values if one.value is not None]
        if not judged or (measured and all(one.cls is None for one in measured)):
            return judge(self)
        def has_enough(one):
            if one.kind in (REPRODUCED, CONTRADICTED):
                return True
            if one.kind == INCOMPARABLE:
                return all(value.rounds >= self.claim.needed for value in one.values)
            return not one.few
        enough = [one for one in judged if has_enough(one)]
        if not enough:
            enough = [max(judged, key=lambda one: sum(value.rounds for value in one.values))]
        kinds = {one.kind for one in enough}
        values = [value for one in enough for value in one.values]
        return Judgement(values, enough[-1].kind if len(kinds) == 1 else INCONCLUSIVE)

    def judge_published(self):
        published = self.claim.published
        difference = (published["tolerance"] or 0) * abs(published["value"])
        bounds = published["value"] - difference, published["value"] + difference
        setup, elsewhere = applies_to(self.claim, self.samples.machine)
        if not self.known:
            return [Judgement([missing(Lack(INCOMPARABLE) if elsewhere else Lack(unmeasured=True))])]
        where = filter_of(setup.get("where"))
        def judged(part, point):
            value = part.point_value(point, bounds)
            is_other = elsewhere or not matches(where, point)
            is_open = value.kind == INCONCLUSIVE and elsewhere
            if is_other and (value.value is not None or is_open):
                value.kind, value.few = INCOMPARABLE, False
            return Judgement([value])
        shown = [point for point in self.known if not elsewhere or not self.points or point in self.points]
        return [self.by_class(lambda part, point=point: judged(part, point)) for point in shown]

    def point_value(self, point, bounds):
        everything = self.points.get(point, {})
        state = chosen_state([state_counts(one.state for one in everything.values())])
        rounds = in_state(everything, state)
        confidence = self.confidence(rounds)
        resolution = max((one.resolution for one in rounds.values()), default=0.0)
        floor = max((one[2] for one in self.floors if one[0] == point and (state is None or one[1] == state)), default=None)
        def estimated(values, of):
            return estimate(values, confidence, resolution, self.drift, [one.censored for one in of.values()], True)
        def judge(found):
            return within_bounds(found.median, found.interval, bounds, floor)
        values = [one.value for one in rounds.values()]
        found = estimated(values, rounds)
        if found is None:
            return missing(self.lack(lambda other: other == point))
        kind = judge(found)
        _, failed, void = self.samples.round_counts(point)
        if failed and any(judge(estimated(values + [extreme] * failed, rounds)) != kind for extreme in (-EXTREME, EXTREME)):
            kind = INCONCLUSIVE
        lost = failed + void + len(everything) - len(rounds)
        def with_lost():
            return judge(estimated([one.value for one in everything.values()], everything))
        kind = weigh_lost(kind, lost, len(values) + lost, with_lost)
        few = found.rounds < self.claim.needed
        kind, correlated = self.require_interval(kind, found)
        if few or self.fails(point):
            kind = INCONCLUSIVE
        return Value(kind, found.median, found.interval, found.rounds, self.class_of(rounds), few or correlated, sides=[[point]])

    def twin_value(self, point):
        maximum, rounds = self.claim.expect["max"], self.points.get(point, {})
        pairing = Pairing(rounds, self.twins.get(point, {}))
        kept, _ = pairing.in_state(chosen_state([pairing.counts]))
        found = estimate([pair[0] - pair[1] for pair in kept], self.confidence(rounds), widens=True)
        if found is None:
            return missing(Lack(few=True))
        kind = inside(-maximum, maximum, found.interval.low, found.interval.high)
        few = found.rounds < self.claim.needed
        kind, correlated = self.require_interval(kind, found)
        if few or self.fails(point):
            kind = INCONCLUSIVE
        return Value(kind, found.median, found.interval, found.rounds, self.class_of(rounds), few or correlated, sides=[[point]])

    def spread_value(self, point):
        """The width of the middle half of the rounds on an idle core."""
        if point not in self.points:
            raise self.lack(lambda other: other == point)
        expect, everything, samples = self.claim.expect, self.points[point], self.samples.last[point, False]
        def is_idle(sample):
            noise = sample.get("noise")
            if noise is None or (expect["unit"] == "steps" and "clock" not in sample):
                return False
            waited = noise.get("waited_ns")
            rested = noise["involuntary_switches"] == 0 if waited is None else waited <= 0.01 * sample["seconds"] * 1e9
            return rested and noise.get("steal_ns") == 0
        idle = alike({at: one for at, one in everything.items() if is_idle(samples[at])})
        if not idle:
            raise Lack(few=True)
        values, confidence = [one.value for one in idle.values()], self.confidence(idle)
        centre = median(values)
        distances = sorted(2 * abs(value - centre) for value in values)
        width, interval = median(distances), order_interval(distances, 1.0, confidence)
        resolution = 2 * max(one.resolution for one in idle.values())
        interval = including(interval, max(width - resolution, 0.0), width + resolution)
        if expect["unit"] == "steps":
            clocks = [samples[at]["clock"] for at in idle if "clock" in samples[at]]
            size = clocks[0]["tsc_step"] * 1e9 / clocks[0]["tsc_hertz"]
        else:
            size = abs(centre)
            if not size:
                raise Lack()
        interval = interval._replace(low=interval.low / size, high=interval.high / size)
        kind = inside(None, expect["max"] * (1 + 1e-6), interval.low, interval.high)
        few = len(values) < self.claim.needed
        if few or self.fails(point):
            kind = INCONCLUSIVE
        return Value(kind, width / size, interval, len(values), self.class_of(everything), few, sides=[[point]])

    # Every sample

    def every_sample(self):
        for sample in self.samples.all:
            value = recorded(sample, self.metric, self.unit)
            if "error" in sample or value is None or not matches(self.claim.where, sample["point"]):
                continue
            cls = self.samples.cls(sample)
            if self.claim.cls in (None, cls) or (cls is None and "void" in sample):
                yield sample, value

    def is_inside(self, value):
        at_least, at_most = self.claim.bounds
        return (at_least is None or value >= at_least) and (at_most is None or value <= at_most)

    def valid_samples(self):
        """The numbers of valid samples outside the bounds and in all, and of rounds that every point has."""
        valid = [(sample, value) for sample, value in self.every_sample() if "void" not in sample]
        outside = [(sample, value) for sample, value in valid if not self.is_inside(value)]
        rounds = {}
        for sample, _ in valid:
            rounds.setdefault(sample["point"], set()).add((sample["session"], sample["round"]))
        return outside, len(valid), min(map(len, rounds.values()), default=0)

    def judge_every_sample(self):
        if not self.points:
            return Judgement([missing(self.lack(lambda _: True))])
        outside, count, rounds = self.valid_samples()
        at_least, at_most = self.claim.bounds
        def may_be_within(value):
            return (self.better == "neither" or (self.better == "higher" and at_least is not None and value < at_least)
                    or (self.better == "lower" and at_most is not None and value > at_most))
        limited = sum(may_be_within(value) and limit_of(sample, self.metric) == "instrument" for sample, value in outside)
        known = set(self.known)
        failed = any(has_failed(sample) and sample["point"] in known for sample in self.samples.all)
        kind, few = REPRODUCED, rounds < self.claim.needed
        if few or failed:
            kind = INCONCLUSIVE
        lack, _ = self.missing(lambda _: True)
        if lack:
            kind, few = lack.kind, few or lack.few
        if limited:
            kind = INCONCLUSIVE
        if len(outside) > limited:
            kind = CONTRADICTED
        return Judgement([Value(kind, len(outside) / max(count, 1), None, rounds, self.cls, few)])

    def judge_some_sample(self):
        if not self.points:
            return Judgement([missing(self.lack(lambda _: True))])
        outside, count, rounds = self.valid_samples()
        kind = REPRODUCED if outside else INCONCLUSIVE
        points = [sample["point"] for sample, _ in outside]
        return Judgement([Value(kind, len(outside) / max(count, 1), None, rounds, self.cls, sides=[points])])

    # Ratios

    def improvement(self, ratio):
        if self.better == "neither":
            raise Lack()
        return ratio if self.better == "higher" else inverted(ratio)

    def is_requested(self, points, at):
        return all(at in self.samples.last.get((point, False), {}) for point in points)

    def ratio(self, above, below, pairing, state, confidence=CONFIDENCE):
        """The ratio of two points, whose lost rounds do not include those that were not requested."""
        ratio = pairing.ratio(state, confidence, widens=True)
        lost = dict(ratio.lost)
        for present, absent in ((above, below), (below, above)):
            for at in self.points[present]:
                if at not in self.points[absent]:
                    if at in self.others.get(absent, ()):
                        lost["missing"], lost["other_class"] = lost["missing"] - 1, lost["other_class"] + 1
                    if not self.is_requested([absent], at):
                        lost["missing"] -= 1
        return ratio._replace(lost=lost)

    def states(self, pairs):
        """The states of the core in which pairs of points are compared: within rounds, and between boots."""
        within = chosen_state([Pairing(self.points[above], self.points[below]).counts for above, below in pairs])
        boots = []
        for point in (point for pair in pairs for point in pair if point in self.boots):
            def count(state):
                return sum(any((one.state or "alone") == state for one in rounds.values()) for rounds in self.boots[point])
            boots.append({"alone": count("alone"), "shared": count("shared"), "changed": 0})
        return within, chosen_state(boots) or "alone"

    def between_boots(self, above, below, state):
        """The ratio of points that no session measured together; None for others."""
        if above not in self.boots or below not in self.boots:
            return None
        if total(Pairing(self.points[above], self.points[below]).counts):
            return None
        medians = []
        for point in (above, below):
            kept = [[one.value for one in in_state(rounds, state).values()] for rounds in self.boots[point]]
            medians.append([median(values) for values in kept if values])
        if min(map(len, medians)) < INTERVAL_ROUNDS:
            raise Lack(few=True)
        return unpaired_ratio(*medians)

    def paired_points(self, above, below, states):
        between = self.between_boots(above, below, states[1])
        if between:
            return Paired(between, above, below, [[above], [below]], states[1], (0, between.rounds), None)
        ratio = self.ratio(above, below, Pairing(self.points[above], self.points[below]), states[0])
        everything = ratio_of_all(self.points[above], self.points[below])
        return Paired(ratio, above, below, [[above], [below]], states[0], lost_of(ratio), everything)

    def best_ratio(self, above, below, state):
        """The ratio of the best points of two sides: of each point to its best rival, the best."""
        if self.better == "neither":
            raise Lack()
        choices = [len(above), len(below)] if self.better == "higher" else [len(below), len(above)]
        confidences = [1 - (1 - CONFIDENCE) / choice for choice in choices]
        rows, with_lost = [], []
        for a in above:
            pairings = [(b, Pairing(self.points[a], self.points[b])) for b in below]
            rows.append([(a, b, *(self.ratio(a, b, both_, state, one) for one in confidences)) for b, both_ in pairings])
        for a in above:
            row = [(a, b, *(ratio_of_all(self.points[a], self.points[b], one) for one in confidences)) for b in below]
            if any(None in one for one in row):
                raise Lack(unmeasured=True)
            with_lost.append(row)
        centre, ratio = self.of_best(rows)
        lost = most_lost(lost_of(one[2]) for row in rows for one in row)
        needed = max(map(interval_rounds, confidences))
        return Paired(ratio, centre[0], centre[1], [above, below], state, lost, self.of_best(with_lost)[1], needed)

    def of_best(self, rows):
        rival, best = (min, last_max) if self.better == "higher" else (last_max, min)
        def pick(value):
            return best([rival(row, key=value) for row in rows], key=value)
        def low_end(one):
            return one[2].interval.low if one[2].interval.kind == "confidence" else -math.inf
        def high_end(one):
            return one[3].interval.high if one[3].interval.kind == "confidence" else math.inf
        centre = pick(lambda one: one[2].ratio)
        low, high = low_end(pick(low_end)), high_end(pick(high_end))
        interval = centre[2].interval
        if math.isinf(low) and math.isinf(high):
            interval = interval._replace(kind="range")
        else:
            interval = interval._replace(low=low, high=high, kind="confidence", coverage=CONFIDENCE)
        return centre, centre[2]._replace(interval=interval)

    def paired_sides(self, of, to, states, combination):
        above, lack, _ = self.side(of, combination)
        below, lack_below, _ = self.side(to, combination)
        if lack_below:
            raise lack_below
        states = states or self.states([(a, b) for a in above for b in below])
        if len(above) == len(below) == 1:
            return self.paired_points(above[0], below[0], states), lack
        return self.best_ratio(above, below, states[0]), lack

    def floor(self, paired):
        floor = near_floor(self.floors, sum(paired.sides, []), paired.state)
        if floor is None or not paired.baselines or paired.baselines[0] == paired.baselines[1]:
            return floor
        of_baselines = near_floor(self.floors, paired.baselines, paired.state)
        return None if of_baselines is None else floor + of_baselines

    def require_sides(self, paired, kind):
        """Weakens the result of a ratio; also returns whether rounds lack."""
        ratio = paired.ratio
        kind, few = self.comparable(kind, ratio.rounds, paired.points(), [paired.state])
        if paired.needed and self.claim.needed >= INTERVAL_ROUNDS and ratio.rounds < paired.needed:
            # One end may decide without the other.
            kind = INCONCLUSIVE if ratio.interval.kind == "range" else kind
            return kind, few or (kind == INCONCLUSIVE and ratio.rounds >= self.claim.needed)
        kind, correlated = self.require_interval(kind, ratio)
        return kind, few or correlated

    def ratio_value(self, paired, kind, below_floor=False):
        kind, few = self.require_sides(paired, kind)
        named = [paired.above, paired.below, *(paired.baselines or [])]
        rounds = [self.points[point] for point in named if point in self.points]
        cls, ratio = self.class_of(*rounds), paired.ratio
        value = Value(kind, ratio.ratio, ratio.interval, ratio.rounds, cls, few, below_floor, paired.sides)
        value.baselines = paired.baselines or []
        return value

    def weigh(self, paired, judged, judge, kind):
        def with_lost():
            everything = paired.with_lost
            return everything and judge(everything if judged == paired.ratio else inverted(everything))
        return weigh_lost(kind, *paired.lost, with_lost)

    def bounded(self, paired, judged, bounds):
        floor = self.floor(paired)
        def judge(ratio):
            return within_bounds(ratio.ratio, ratio.interval, bounds, floor)
        kind = judge(judged)
        if judged.interval.low == judged.interval.high == 1 and 1.0 in bounds:
            kind = INCONCLUSIVE
        return self.ratio_value(paired, self.weigh(paired, judged, judge, kind))

    def resolved(self, paired, judged):
        floor = self.floor(paired)
        resolution = resolve(judged, floor)
        kind = self.weigh(paired, judged, lambda ratio: verdict_of(resolve(ratio, floor)), verdict_of(resolution))
        return self.ratio_value(paired, kind, resolution == "below-floor")

    @staticmethod
    def weaken(value, lack, holds_if_better):
        """A missing point may be better: the result may only be one that a better point would not change."""
        if lack and (value.kind != REPRODUCED or not holds_if_better):
            value.kind = lack.kind
        value.few |= bool(lack and lack.few)

    def judge_ratio(self, combination):
        expect, bounds = self.claim.expect, self.claim.bounds
        paired, lack = self.paired_sides(*self.compared_filters(), None, combination)
        value = self.bounded(paired, paired.ratio, bounds)
        self.weaken(value, lack, {"higher": bounds[1] is None, "lower": bounds[0] is None}.get(self.better, False))
        if expect["limit"] and value.kind != REPRODUCED:
            self.apply_limit(value, combination)
        return Judgement([value])

    def apply_limit(self, value, combination):
        """Makes a value unmeasurable if the machine's limit does not permit the claimed ratio."""
        expect = self.claim.expect
        try:
            highest, lack = self.paired_sides(filter_of(expect["limit"]), filter_of(expect["to"]), None, combination)
        except Lack:
            return
        bounds = (self.claim.bounds[0], None)
        kind = within_bounds(highest.ratio.ratio, highest.ratio.interval, bounds, self.floor(highest))
        if self.require_sides(highest, kind)[0] == CONTRADICTED and not lack:
            value.kind = UNMEASURABLE

    def judge_ranking(self, combination):
        ranking, sides = self.claim.sides(), []
        for wanted in ranking:
            try:
                sides.append(self.side(wanted, combination)[0])
            except Lack:
                pass
        states = self.states([(a, b) for one, other in zip(sides, sides[1:]) for a in one for b in other])
        values = []
        for of, to in zip(ranking, ranking[1:]):
            try:
                paired, lack = self.paired_sides(of, to, states, combination)
                value = self.resolved(paired, self.improvement(paired.ratio))
                self.weaken(value, lack, True)
                values.append(value)
            except Lack as lack:
                values.append(missing(lack))
        return Judgement(values)

    def overhead(self, side, baseline, combination):
        """A point relative to its baseline: the quotient of each round or why it has none, and all quotients."""
        points, lack, _ = self.side(side, combination)
        if lack or len(points) != 1:
            raise lack or Lack()
        point = points[0]
        base = tuple(sorted({**dict(point), **{factor: levels[0] for factor, levels in baseline.items()}}.items()))
        if base not in self.points:
            raise self.lack(lambda other: other == base)
        above, below, rounds, everything = self.points[point], self.points[base], {}, {}
        for at in sorted(above.keys() | below.keys()):
            pair = pair_of(above.get(at), below.get(at))
            if pair == "missing" and any(at in self.others.get(one, ()) for one in (point, base)):
                pair = "other_class"
            if at in above and at in below and below[at].value:
                a, b = above[at], below[at]
                value = a.value / b.value
                everything[at] = Observation(
                    value, abs(value) * math.hypot(share_of(a), share_of(b)), a.cls or b.cls, a.session,
                    a.state or b.state, ratio_censored(a.censored, b.censored))
            rounds[at] = pair if isinstance(pair, str) else everything.get(at, "missing")
        return point, base, rounds, everything

    def judge_relative(self, combination):
        baselines = [filter_of(one) for one in self.claim.expect["baselines"]]
        sides = [self.overhead(side, base, combination) for side, base in zip(self.compared_filters(), baselines)]
        (above, above_base, above_rounds, _), (below, below_base, below_rounds, _) = sides
        numerator, denominator, lost = {}, {}, 0
        for at in sorted(above_rounds.keys() | below_rounds.keys()):
            if not self.is_requested([above, above_base, below, below_base], at):
                continue
            one, other = above_rounds.get(at, "missing"), below_rounds.get(at, "missing")
            if isinstance(one, str) or isinstance(other, str):
                lost += 1
            else:
                numerator[at], denominator[at] = one, other
        pairing = Pairing(numerator, denominator)
        state = chosen_state([pairing.counts])
        ratio = pairing.ratio(state, widens=True)
        ratio = ratio._replace(lost={**ratio.lost, "missing": ratio.lost["missing"] + lost})
        everything = ratio_of_all(sides[0][3], sides[1][3])
        paired = Paired(ratio, above, below, [[above], [below]], state, lost_of(ratio), everything,
                        baselines=[above_base, below_base])
        return Judgement([self.bounded(paired, ratio, self.claim.bounds)])

    # Trends

    def judge_shape(self, combination):
        expect, along = self.claim.expect, self.claim.expect["along"]
        self.require_fixed(combination, [along])
        def is_wanted(point):
            return combination.items() <= dict(point).items()
        def level(point):
            found = number(dict(point).get(along))
            return math.inf if found is None else found
        points = sorted(filter(is_wanted, self.points), key=level)
        if len(points) < 2:
            raise self.lack(is_wanted)
        lack, _ = self.missing(is_wanted)
        if lack:
            raise lack
        states = self.states([(above, below) for at, below in enumerate(points) for above in points[at + 1:]])
        within = expect["within"] or 0.0
        try:
            if expect["form"] == "flat":
                bounds = 1 / (1 + within), 1 + within
                paired = [self.paired_points(point, points[0], states) for point in points[1:]]
                values = [self.bounded(one, one.ratio, bounds) for one in paired]
            elif expect["form"] == "saturates":
                knee = number(str(expect["beyond"])) or 0.0
                reached = sum(level(point) <= knee for point in points)
                if reached < 2 or reached == len(points):
                    raise Lack()
                values = self.monotonic(points[:reached], states, self.improvement)
                for point in points[reached:]:
                    paired = self.paired_points(point, points[reached - 1], states)
                    values.append(self.bounded(paired, self.improvement(paired.ratio), (None, 1 + within)))
            else:
                directed = (lambda ratio: ratio) if expect["form"] == "rises" else inverted
                values = self.monotonic(points, states, directed)
        except Lack as lack:
            values = [missing(lack)]
        judgement = Judgement(values)
        if judgement.kind in (REPRODUCED, CONTRADICTED) and any(map(self.fails, points)):
            judgement.kind = INCONCLUSIVE
        return judgement

    def monotonic(self, points, states, directed):
        """The last level over the first, and every two levels that are resolved in the other direction."""
        def judged(below, above):
            paired = self.paired_points(points[above], points[below], states)
            ratio = directed(paired.ratio)
            return ratio, self.resolved(paired, ratio)
        last = len(points) - 1
        values, others = [judged(0, last)[1]], []
        for below in range(last + 1):
            for above in range(below + 1, last + 1):
                if (below, above) != (0, last):
                    ratio, value = judged(below, above)
                    pairing = Pairing(self.points[points[above]], self.points[points[below]])
                    p = 1.0
                    if ratio.ratio < 1 and pairing.in_state(states[0])[0]:
                        p = pairing.sign_test(states[0])
                    others.append((ratio, p, value))
        certain = holm([p for _, p, _ in others], 1 - CONFIDENCE)
        for (ratio, _, value), is_certain in zip(others, certain):
            if ratio.interval.high < 1 and not value.below_floor:
                if value.kind == CONTRADICTED and not is_certain:
                    value.kind = INCONCLUSIVE
                values.append(value)
        return values

    # Contests

    def contest(self, points, rounds, level):
        """Which of some points may be the best; also the state, the common rounds and the lost rounds."""
        every_two = [(a, b, Pairing(rounds[a], rounds[b])) for at, a in enumerate(points) for b in points[at + 1:]]
        state = chosen_state([pairing.counts for _, _, pairing in every_two])
        of_each = {point: [] for point in points}
        for a, b, pairing in every_two:
            ratio = pairing.ratio(state)
            if self.better == "neither":
                raise Lack()
            resolution = resolve(ratio, near_floor(self.floors, [a, b], state))
            better = {"higher": a, "lower": b}.get(resolution)
            worse = None if better is None else b if (better == a) == (self.better == "higher") else a
            lost = sum(ratio.lost.values()) - ratio.lost["missing"]
            one = worse, pairing.sign_test(state), ratio.rounds, lost
            of_each[a].append(one)
            of_each[b].append(one)
        def is_beaten(point):
            rejected = holm([one[1] for one in of_each[point]], level)
            return any(one[0] == point and is_rejected for one, is_rejected in zip(of_each[point], rejected))
        candidates = {point for point in points if not is_beaten(point)}
        comparisons = [one for each in of_each.values() for one in each]
        common = min((one[2] for one in comparisons), default=0)
        lost = most_lost((one[3], one[2] + one[3]) for one in comparisons)
        return candidates, state, common, lost

    def judge_winner(self, combination):
        factor, along = self.claim.expect["factor"], self.claim.expect["along"]
        self.require_fixed(combination, [factor, along])
        points, lack, left_out = self.side({}, combination)
        if lack:
            raise lack
        def level(point):
            found = number(dict(point).get(along))
            return math.inf if found is None else found
        ordered = sorted((point for point in points if factor in dict(point)), key=level)
        levels = list(dict.fromkeys(dict(point)[along] for point in ordered if along in dict(point)))
        sets = [{dict(one)[factor] for one in ordered if dict(one).get(along) == at} for at in levels]
        common = set.intersection(*sets) if sets else set()
        left_out += len(set().union(*sets) - common)
        if len(levels) < 2 or len(common) < 2:
            incomplete = self.lack(lambda point: combination.items() <= dict(point).items())
            raise incomplete if incomplete.kind == UNMEASURABLE else Lack()
        sides = [[one for one in points if dict(one).get(along) == at and dict(one).get(factor) in common] for at in levels]
        share = (1 - CONFIDENCE) / len(sides)
        contests = [self.contest(side, self.points, share) for side in sides]
        def result(found):
            candidates = [{dict(point)[factor] for point in one[0]} for one in found]
            if not set.intersection(*candidates):
                return REPRODUCED
            return CONTRADICTED if all(len(one) == 1 for one in candidates) else INCONCLUSIVE
        kind = result(contests)
        if kind == CONTRADICTED and left_out:
            kind = INCONCLUSIVE
        def bare(rounds, state):
            return {at: one._replace(cls=None, session=0, state=state) for at, one in rounds.items()}
        again = []
        for side, (_, state, _, _) in zip(sides, contests):
            again.append(self.contest(side, {point: bare(self.points[point], state) for point in side}, share))
        kind = weigh_lost(kind, *most_lost(one[3] for one in contests), lambda: result(again))
        rounds = min(one[2] for one in contests)
        known = [point for point in self.known if combination.items() <= dict(point).items()]
        kind, few = self.comparable(kind, rounds, known, [one[1] for one in contests])
        values = []
        for side, (candidates, state, _, _) in zip(sides, contests):
            of_state = [(point, in_state(self.points[point], state)) for point in side]
            of_state = [one for one in of_state if one[1]]
            leader = last_max(of_state, key=lambda one: median([o.value for o in one[1].values()])
                              * (-1 if self.better == "lower" else 1))
            values.append(self.leader_value(*leader, len(candidates) == 1))
        return Judgement(values, kind, few)

    def leader_value(self, point, rounds, is_only):
        found = estimate_rounds(rounds, self.drift)
        kind = REPRODUCED if is_only else INCONCLUSIVE
        return Value(kind, found.median, found.interval, found.rounds, self.class_of(rounds), sides=[[point]])


def last_max(items, key):
    """The last of the largest items."""
    return max(reversed(items), key=key)


def estimate_rounds(rounds, drift):
    """The estimate of rounds with their resolution, the drift and their limits."""
    values = [one.value for one in rounds.values()]
    resolution = max((one.resolution for one in rounds.values()), default=0.0)
    return estimate(values, CONFIDENCE, resolution, drift, [one.censored for one in rounds.values()])


def applies_to(claim, machine):
    """The points to which a published value applies, and whether the machine is another than the source's."""
    carries = claim.declared["carries_over"]
    if carries == "nowhere":
        return {}, True
    return (carries, bool(unmet(carries, machine))) if isinstance(carries, dict) else ({}, False)


def combine(kinds, hold):
    """The verdict from the results of the points or combinations."""
    shown, absent, count = kinds.count(INCOMPARABLE), kinds.count(UNMEASURABLE), kinds.count
    judged = len(kinds) - shown
    if shown and shown + absent == len(kinds):
        return INCOMPARABLE
    if judged and judged == absent:
        return UNMEASURABLE
    if isinstance(hold, dict):
        needed = math.ceil(hold["share"] * (judged - absent) - 1e-9)
        if judged and count(REPRODUCED) >= needed:
            return REPRODUCED
        return CONTRADICTED if judged and judged - absent - count(CONTRADICTED) < needed else INCONCLUSIVE
    if hold == "all" and count(CONTRADICTED):
        return CONTRADICTED
    if hold == "some" and count(REPRODUCED):
        return REPRODUCED
    if count(INCONCLUSIVE) or not judged:
        return INCONCLUSIVE
    return REPRODUCED if hold == "all" else INCONCLUSIVE if absent else CONTRADICTED


class Run:
    def __init__(self, record, samples, cores):
        self.record, self.samples, self.cores, self.indexed = record, samples, cores, {}

    def experiments(self):
        """The experiments with samples, without those of the lab itself."""
        return {one["experiment"] for one in self.samples if not one["experiment"].startswith("lab/")}

    def environment(self, experiment):
        return next((one["environment"] for one in reversed(self.samples) if one["experiment"] == experiment), None)

    def of(self, experiment, environment):
        key = experiment, environment
        if key not in self.indexed:
            self.indexed[key] = Samples(self, experiment, environment)
        return self.indexed[key]

    def judge(self, declared):
        """The verdict on a claim, and its values."""
        newest = self.environment(declared["experiment"])
        kind, values = self.judge_in(declared, newest)
        if newest is None or declared["unmeasurable"] is not None or kind not in (REPRODUCED, CONTRADICTED):
            return kind, values
        claim, samples = Claim(declared), self.of(declared["experiment"], newest)
        for other in samples.other_environments(claim.is_about):
            there = self.judge_in(declared, other)[0]
            is_violated = claim.kind == "every-sample" and kind == CONTRADICTED
            if there in (REPRODUCED, CONTRADICTED) and there != kind:
                return INCONCLUSIVE, values
            if self.fails_in(claim, self.of(claim.experiment, other)) and not is_violated:
                return INCONCLUSIVE, values
        return kind, values

    @staticmethod
    def fails_in(claim, samples):
        points = [point for point, twin in samples.last if not twin and claim.is_about(point)]
        on_every = claim.kind == "every-sample"
        return claim.kind != "some-sample" and any(
            samples.fails_too_often(point) or (on_every and samples.round_counts(point)[1]) for point in points)

    def without_evidence(self, claim, environment):
        """The result if the machine or the run cannot show the claim; None if it can."""
        declared, record, machine = claim.declared, self.record, self.record["environments"].get(environment)
        guests = record["guests"] or {}
        emulated = guests.get("clock") == "none" or guests.get("accelerator") == "tcg" or (machine and machine["emulated"])
        if declared["unmeasurable"] is not None or guests.get("clock") == "planted":
            return UNMEASURABLE
        if not declared["emulated"] and (emulated or self.has_emulated_sample(claim, environment)):
            return UNMEASURABLE
        cores = len(machine["topology"]["cores"]) if machine else self.cores
        if declared["cores"] is not None and cores < declared["cores"]:
            return UNMEASURABLE
        if declared["requires"] and machine and unmet(declared["requires"], machine):
            return UNMEASURABLE
        if declared["profile"] and declared["profile"] != record["profile"]:
            return INCOMPARABLE if applies_to(claim, machine)[1] else NOT_MEASURED
        return NOT_MEASURED if environment is None else None

    def has_emulated_sample(self, claim, environment):
        """Whether an emulator executed a selected sample of a real CPU: in a guest of the point, a role, or the probe."""
        environments = self.record["environments"]

        def is_emulated(sample):
            parts = list(sample.get("parts", {}).values())
            return any(one.get("covariates", {}).get("executed_by") == "tcg" for one in [sample, *parts]) or any(
                environments.get(part.get("environment"), {}).get("emulated") for part in parts)

        return environment is not None and any(
            is_emulated(one) for one in self.of(claim.experiment, environment).all
            if is_valid(one) and claim.is_about(one["point"]))

    def judge_in(self, declared, environment):
        where = filter_of(declared["where"])
        if declared["prefer"] is not None and environment is not None:
            preferred = {**where, **filter_of(declared["prefer"])}
            if any(is_valid(one) and matches(preferred, one["point"]) for one in self.of(declared["experiment"], environment).all):
                where = preferred
        claim = Claim(declared, where)
        kind, evidence = self.without_evidence(claim, environment), None
        lack = Lack(unmeasured=True) if kind == NOT_MEASURED else Lack(kind)
        judgements = [Judgement([missing(lack)])] if kind else None
        if judgements is None:
            try:
                evidence = Evidence(claim, self.of(claim.experiment, environment))
                judgements = evidence.judge()
            except Lack as lack:
                judgements = [Judgement([missing(lack)])]
        hold = claim.expect.get("hold", "all")
        kind = combine([one.kind for one in judgements], hold)
        if evidence and kind != INCOMPARABLE and evidence.lacks_levels():
            decided = {"all": CONTRADICTED, "some": REPRODUCED}.get(hold if isinstance(hold, str) else "")
            kind = INCONCLUSIVE if kind in (REPRODUCED, CONTRADICTED) and kind != decided else kind
        if declared["one_sided"] is not None and kind == CONTRADICTED:
            kind = INCOMPARABLE
        if kind == INCONCLUSIVE and judgements and all(
                one.values and all(value.unmeasured for value in one.values) for one in judgements):
            kind = NOT_MEASURED
        return kind, [value for one in judgements for value in one.values if value.value is not None]


# Comparison with the bundle -------------------------------------------------------------------------------------------

def is_close(one, other, scale=0.0):
    """Whether two numbers agree; None is an open end, or no number."""
    one, other = (None if value is None or math.isinf(value) else value for value in (one, other))
    if one is None or other is None:
        return one is other
    return abs(one - other) <= TOLERANCE * max(abs(one), abs(other), abs(scale))


def differs(stated, found):
    """Whether a stated value with its interval differs: (value, rounds, low, high) each."""
    scale = found[0] or 0.0
    return stated[1] != found[1] or not all(is_close(stated[at], found[at], scale) for at in (0, 2, 3))


def ends(interval):
    return (None, None) if interval is None else (interval["low"], interval["high"])


def levels_in(text, factors):
    """The levels that a text names, e.g. `length=1 KiB function=glibc`, as (factor, level); None for another text."""
    starts = [one for one in re.finditer(r"(?:^|[ ;]|and )([\w-]+)=", text) if one[1] in factors]
    if not starts or starts[0].start() != 0:
        return None
    ends = [one.start() for one in starts[1:]] + [len(text)]
    return [(one[1], text[one.end():end]) for one, end in zip(starts, ends)]


def names(label, value):
    """Whether all levels in the label of a stated value are of the points that a computed value is of."""
    if not value.sides:
        return label == ""
    factors = {factor for side in value.sides for point in side for factor, _ in point}
    def is_one_of(text, points, common=()):
        levels = levels_in(text, factors) if text else []
        # A side may replace a level of the combination.
        return levels is not None and any({**dict(common), **dict(levels)}.items() <= dict(point).items() for point in points)
    text, _, relative = label.partition(", each relative to ")
    if relative:
        bases = {level for point in value.baselines for level in point}
        if not set(levels_in(relative.replace(" and ", " "), factors) or [("", "")]) <= bases:
            return False
    if len(value.sides) == 1:
        # Of the points outside of bounds, or of the winner at a level.
        parts = text.replace(": ", " ").split("; ") if text else []
        return all(is_one_of(part, value.sides[0]) for part in parts if part)
    above, below = value.sides
    same = text.removeprefix("the best of both sides is the same point: ")
    if same != text:
        return is_one_of(same, above) and is_one_of(same, below)
    first, over, second = text.partition(" over ")
    combination, _, first = first.rpartition(": ")
    common = levels_in(combination, factors) if combination else []
    return bool(over) and common is not None and is_one_of(first, above, common) and is_one_of(second, below, common)


def numbers_of(value):
    return (value.value, value.rounds, *(value.interval[:2] if value.interval else (None, None)))


def verify_claim(run, claim):
    """The disagreements on a claim, and the number of its values. A stated value must be the computed one of its points."""
    kind, values = run.judge(claim["declared"])
    stated = {(one["label"], one["value"], one["rounds"], *ends(one["interval"]))
              for each in claim["judgements"] for one in each["values"] if one["value"] is not None}
    lines, of_claim = [], f"claim {claim['id']}"
    if kind != claim["verdict"]:
        lines.append(f"{of_claim}: the verdict is {claim['verdict']}, and computed {kind}")
    known = set()
    for label, *one in sorted(stated, key=lambda one: (one[0], str(one))):
        named = [at for at, value in enumerate(values) if names(label, value)]
        same = [at for at in named if not differs(one, numbers_of(values[at]))]
        known.update(same)
        if not named:
            lines.append(f"{of_claim}: the value of '{label}' is {one[0]}, and no value of such points is computed")
        elif not same:
            computed = ", ".join(str(numbers_of(values[at])) for at in named[:3])
            lines.append(f"{of_claim}: (value, rounds, low, high) of '{label}' is {tuple(one)}, and computed {computed}")
    for at, value in enumerate(values):
        if at not in known and not lines:
            lines.append(f"{of_claim}: a value is missing, computed {numbers_of(value)}")
    return lines, len(stated)


def verify_experiment(run, shown):
    """The disagreements on the values of an experiment, and the number of its intervals."""
    samples = run.of(shown["experiment"], shown["environment"])
    points, twins, _, drift = samples.observed(shown["metric"], "own")
    shown_points = {point_of(row["point"]) for row in shown["rows"]}
    lines = [f"{shown['experiment']}: values.json lacks {dict(point)}" for point in points.keys() - shown_points]
    count = 0
    def compare(what, stated, found, names):
        nonlocal count
        count += 1
        if stated is None or found is None:
            same = stated is None and found is None
        else:
            one = (stated[names], stated["rounds"], *ends(stated["interval"]))
            same = not differs(one, (found[0], found.rounds, *found.interval[:2]))
            same &= stated["interval"]["kind"] == found.interval.kind and is_close(stated["lag_1"], found.lag_1, 1.0)
        if not same:
            lines.append(f"{shown['experiment']}: {what} is {stated}, and computed {found}")
    for row in shown["rows"]:
        point = point_of(row["point"])
        rounds = points.get(point, {})
        compare(f"the value of {row['point']}", row["estimate"], estimate_rounds(alike(rounds), drift), "median")
        classes = {one.cls for one in rounds.values() if one.cls}
        for cls in classes if len(classes) > 1 else ():
            of_class = alike({at: one for at, one in rounds.items() if one.cls == cls})
            compare(f"{cls} {row['point']}", row["by_class"].get(cls), estimate_rounds(of_class, drift), "median")
    ratios, stated = twin_ratios(points, twins), {point_of(point): ratio for point, ratio in shown["twins"]}
    for point in stated.keys() | ratios.keys():
        compare(f"the ratio of the twins of {dict(point)}", stated.get(point), ratios.get(point), "ratio")
    stated = {(point_of(one["point"]), one["state"]): one["floor"] for one in shown["floors"]}
    found = {(point, state): floor for point, state, floor in floors_of(points, twins)}
    for key in stated.keys() | found.keys():
        count += 1
        if not is_close(stated.get(key), found.get(key), 1e-3):
            lines.append(f"{shown['experiment']}: the floor of {key} is {stated.get(key)}, and computed {found.get(key)}")
    return lines, count


def read(path):
    """The run, the claims and the values in a bundle, whose files must be those that were bundled."""
    with zipfile.ZipFile(path) as archive:
        listed = dict(reversed(line.split("  ", 1)) for line in archive.read("manifest-sha256.txt").decode().splitlines())
        def entry(name):
            if archive.getinfo(name).file_size > MAX_BYTES:
                raise ValueError(f"{name} is larger than {MAX_BYTES} bytes")
            data = archive.read(name)
            if hashlib.sha256(data).hexdigest() != listed[name]:
                raise ValueError(f"{name} is not the file that was bundled")
            return data
        record, claims, values = (json.loads(entry(name)) for name in ("run.json", "claims.json", "values.json"))
        # A last line without its end was in flight when the run was killed.
        samples = [json.loads(line) for line in entry("samples.jsonl").split(b"\n")[:-1]]
    for sample in samples:
        sample["point"] = point_of(sample["point"])
    return Run(record, samples, claims["cores"]), claims["claims"], values["experiments"]


def say(line, file=sys.stdout):
    """Prints a line, in which texts of the bundle cannot control the terminal."""
    print("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line), file=file)


def counted(number, noun):
    """A number with its noun: `1 claim`, `2 claims`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def verify(path):
    """Prints the disagreements of a bundle; returns the exit status."""
    run, claims, experiments = read(path)
    lines, intervals, values, unverified = [], 0, 0, {}
    for missing in run.experiments() - {shown["experiment"] for shown in experiments}:
        lines.append(f"values.json lacks {missing}")
    for shown in experiments:
        found, count = verify_experiment(run, shown)
        lines, intervals = lines + found, intervals + count
    for claim in claims:
        try:
            found, count = verify_claim(run, claim)
            lines, values = lines + found, values + count
        except NotImplementedError as kind:
            unverified.setdefault(str(kind), []).append(claim["id"])
    for line in lines:
        say(line)
    for kind, names in unverified.items():
        say(f"not verified: {counted(len(names), 'claim')} of kind {kind}: {', '.join(names)}")
    say(f"{path}: {intervals} intervals of points and twins, {len(claims)} verdicts with {values} values: "
        f"{counted(len(lines), 'disagreement')}, {sum(map(len, unverified.values()))} not verified")
    return 1 if lines else 3 if unverified else 0


def main(path):
    try:
        return verify(path)
    # What a bundle from others lacks, or has in another form, can show anywhere.
    except (OSError, LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError,
            zipfile.BadZipFile) as why:
        say(f"error: {path}: {why!r}; get the bundle again from its source", file=sys.stderr)
        return 2


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        sys.exit(2)
    sys.exit(main(sys.argv[1]))
