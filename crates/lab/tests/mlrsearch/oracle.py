"""Searches simulated systems by MLRsearch of PyPI, CSIT's own program.

Reads a line of JSON, {"search": {...}, "systems": [{...}, ...]}, and writes a list with the bounds of each goal of each
system: [[lower, upper], [lower, upper]], null if a bound is missing.
"""

import json
import math
import sys

from MLRsearch import (
    AbstractMeasurer,
    Config,
    MeasurementResult,
    MultipleLossRatioSearch,
    SearchGoal,
)


class Simulated(AbstractMeasurer):
    """Loses all packets above `edge`, and `slope` of the excess over `knee` below it."""

    def __init__(self, edge, knee, slope):
        self.edge, self.knee, self.slope = edge, knee, slope

    def measure(self, intended_duration, intended_load):
        excess = max(0.0, intended_load / self.knee - 1.0)
        ratio = min(1.0, max(0.0, 1.0 - self.edge / intended_load) + self.slope * excess)
        sent = round(intended_load * intended_duration)
        return MeasurementResult(
            intended_duration, intended_load, offered_count=sent, loss_count=math.ceil(ratio * sent)
        )


def search(parameters, system):
    config = Config()
    config.warmup_duration = 0.0
    config.min_load, config.max_load = parameters["min_load"], parameters["max_load"]
    duration = parameters["duration"]
    config.goals = [
        SearchGoal(
            loss_ratio=ratio,
            exceed_ratio=0.0,
            relative_width=parameters["width"],
            initial_trial_duration=parameters["min_duration"],
            final_trial_duration=duration,
            duration_sum=duration * parameters["trials"],
            preceding_targets=2,
            fail_fast=False,
        )
        for ratio in parameters["ratios"]
    ]
    found = MultipleLossRatioSearch(config).search(Simulated(**system), debug=lambda _: None)
    bound = lambda stat: None if stat is None else float(stat)
    bounds = [found[goal] for goal in config.goals]
    return [[bound(it.relevant_lower_bound), bound(it.relevant_upper_bound)] for it in bounds]


given = json.load(sys.stdin)
json.dump([search(given["search"], system) for system in given["systems"]], sys.stdout)
