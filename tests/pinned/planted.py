"""The tests that plant a bug, and which bugs they plant: collected by pytest, in a process of its own."""

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.support.aggregators import ENVIRONMENT

ROOT = Path(__file__).parents[2]

TESTS = {
    "tests/aggregator/test_decode.py": ["test_a_wrong_transform_is_refused"],
    "tests/aggregator/test_estimate.py": ["test_a_wrong_p_would_be_caught"],
    "tests/aggregator/test_rappor_intervals.py": [
        "test_a_decoder_without_the_unlisted_column_would_be_caught",
        "test_errors_of_the_noise_alone_would_be_caught",
        "test_weights_made_of_the_counts_would_be_caught",
    ],
    "tests/client/auditing/test_catches.py": [
        "test_name_and_shame_is_caught_with_100_000_samples_and_not_with_10_000",
        "test_name_and_shame_is_caught_at_once_by_its_exact_law",
        "test_noise_of_floats_is_caught_with_10_000_samples",
        "test_an_epsilon_of_each_attribute_that_is_sold_as_the_users_is_caught_with_1_000_samples",
        "test_a_value_at_which_a_randomizer_raises_is_caught_with_100_samples",
        "test_a_coin_that_is_used_for_another_mechanism_is_caught",
        "test_a_value_that_passes_through_unlisted_is_caught_with_2_000_samples",
        "test_a_modulo_is_caught_with_10_000_samples_though_no_law_shows_it",
        "test_an_epsilon_of_one_tick_for_answers_of_several_is_caught_with_10_000_samples",
        "test_parts_of_a_mixture_at_different_epsilons_are_caught_with_2_000_samples",
        "test_a_memo_that_is_drawn_each_time_is_caught_with_100_devices",
        "test_a_memo_that_all_values_share_is_caught_with_130_devices",
        "test_a_second_stage_that_is_fixed_is_caught_with_200_devices",
        "test_a_length_that_depends_on_the_value_is_caught_with_100_devices",
        "test_a_cell_that_is_chosen_from_the_value_is_caught_with_100_devices",
        "test_an_order_of_groups_that_depends_on_the_value_is_caught_with_100_devices",
        "test_a_hidden_answer_that_moves_an_upload_is_caught_with_100_devices",
    ],
    "tests/faults/aggregator/test_kills.py": ["test_a_planted_bug_is_found"],
    "tests/faults/aggregator/test_oracle.py": [
        "test_what_is_wrong_is_said",
        "test_a_receipt_must_be_that_of_the_upload",
        "test_a_copy_may_count_again_when_its_id_is_forgotten",
    ],
    "tests/faults/aggregator/test_planted_bugs.py": ["test_a_run_shows_a_planted_bug"],
    "tests/faults/aggregator/test_syncs.py": [
        "test_a_202_without_a_sync_is_seen_in_the_trace",
        "test_where_redis_does_not_wait_for_the_disk_acknowledged_reports_are_seen_to_be_lost",
    ],
    "tests/faults/test_kill.py": ["test_a_planted_bug_is_found_by_a_kill"],
    "tests/faults/test_life_bugs.py": ["test_a_life_shows_a_planted_bug"],
    "tests/faults/test_moments.py": ["test_moments_that_depend_on_answers_are_seen"],
    "tests/faults/test_taint.py": ["test_a_planted_leak_is_found"],
    "tests/faults/test_to_and_fro.py": ["test_a_life_to_and_fro_shows_a_planted_bug"],
    "tests/faults/test_year.py": ["test_a_year_shows_a_planted_bug"],
    "tests/fuzz/test_uploads.py": [
        "test_the_guided_fuzzer_finds_a_planted_bug",
        "test_a_bug_planted_in_the_reports_is_caught",
        "test_a_bug_planted_in_the_wire_is_caught",
    ],
    "tests/second/test_devices.py": [
        "test_another_padding_is_seen_beside_a_real_device",
        "test_an_aggregator_takes_nothing_under_another_digest",
    ],
    "tests/second/test_hostile.py": ["test_a_reader_that_skips_a_rule_is_seen"],
    "tests/second/test_laws.py": ["test_another_order_of_points_or_sets_is_seen"],
    "tests/second/test_vectors.py": [
        "test_another_rule_of_digests_is_seen_in_every_vector",
        "test_a_spoiled_rule_of_values_is_seen",
        "test_a_reader_that_takes_spare_bits_or_any_order_is_seen",
    ],
    "tests/shared/test_mechanisms.py": [
        "test_the_threshold_of_keep_or_uniform_would_be_caught",
        "test_planted_bugs_are_caught",
        "test_a_report_that_only_one_answer_has_is_caught",
        "test_ticks_times_epsilon_would_be_caught_where_answers_must_overlap",
    ],
    "tests/shared/test_memos.py": [
        "test_the_published_odds_would_waste_accuracy",
        "test_a_permanent_part_that_is_drawn_again_would_be_caught",
    ],
    "tests/shared/test_rappor.py": ["test_twice_as_many_bits_in_the_exponent_would_be_caught"],
    "tests/shared/test_rng.py": [
        "test_coins_that_share_a_number_would_be_caught",
        "test_a_float_comparison_would_be_caught",
        "test_a_modulo_would_be_caught",
    ],
    "tests/shared/test_samplers.py": ["test_a_spoiled_sampler_is_caught_with_real_coins"],
    "tests/test_benchmarks.py": ["test_a_formula_that_promises_too_much_would_be_caught"],
    "tests/test_end_to_end.py": ["test_the_demo_finds_it_when_too_few_intervals_hold_or_reports_are_missing"],
}
"""The tests that plant bugs, by file: the generator lists those that it finds."""
LEFT_OUT = ("-p", "no:cacheprovider")
"""Plugins that have no part in collecting these tests, and that pyproject.toml does not leave out."""


def collect(files: Iterable[str]) -> dict[str, list[str]]:
    """Return the tests that these files have, by file, with those that only a soak runs."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "--assert=plain", *LEFT_OUT, *files],
        cwd=ROOT,
        env={**ENVIRONMENT, "SOAK_TESTS": "1", "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    collected: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        file, separator, test = line.partition("::")
        if separator and not file.startswith("ERROR"):
            collected.setdefault(file, []).append(test)
    return collected


def pinned(listed: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the vectors of planted_bugs.json: listed tests and new ones. Those that are gone are taken out by hand."""
    bugs = {file: list(tests) for file, tests in listed.items()}
    for file, tests in collect(TESTS).items():
        planting = [test for test in tests if test.partition("[")[0] in TESTS[file]]
        bugs[file] = sorted({*bugs.get(file, ()), *planting})
    return dict(sorted(bugs.items()))


NAMED = re.compile(r"^def (test_\w*(?:would_be_caught|(?:is|are)_caught|planted_bug)\w*)", re.MULTILINE)
"""A test whose name says that it plants a bug."""
SAYING = re.compile(r'^def (test_\w+)\([^)]*\) -> None:\n    """Planted', re.MULTILINE)
"""A test whose description begins with it."""


def named() -> dict[str, list[str]]:
    """Return the tests that say so and are not listed above, by file. Nothing is imported."""
    found = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        file, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        saying = {*NAMED.findall(text), *SAYING.findall(text)} - {"test_no_planted_bug_has_gone"}  # which plants none
        if tests := saying - set(TESTS.get(file, ())):
            found[file] = sorted(tests)
    return found
