#!/usr/bin/env python3
"""Each limit of the door for TCP has an attack that it holds and a guest that it lets through.

  door_limits.py SOURCE
  door_limits.py --self-test       reads a struct with every form of a field, and a table with limits and tests that are not there

A limit is a field of FrameLimits, MessageLimits, AdmissionLimits or RelayOptions in lib/rpc/door. TESTS names for each the attack, one of
tests/fault/attack_test.py, and the guest, one of tests/fault/guests_test.py; or a test of rpc_door_test where it takes a clock of its own or many hosts.
Exit status 1: a limit is missing, or a test that is named is not there.
"""

import pathlib
import re
import sys

sys.dont_write_bytecode = True

STRUCTS = {"FrameLimits": "frame_guard.h", "MessageLimits": "connection_relay.h", "RelayOptions": "connection_relay.h", "AdmissionLimits": "admission.h"}
# Parts that a relay works with.
PARTS = {"admission", "frames", "messages", "clock", "peers", "counts", "hand_over"}
# limit -> attack, guest
TESTS = {
    "FrameLimits.max_message_bytes": ("message", "FrameGuardTest.AMessageMayLieAnyhowInFrames"),
    "FrameLimits.max_header_bytes": ("big_headers", "FrameGuardTest.HeadersAreBounded"),
    "FrameLimits.max_continuations": ("big_headers", "FrameGuardTest.HeadersAreBounded"),
    "FrameLimits.max_header_fields": ("many_fields", "FrameGuardTest.FieldsOfHeadersAreBounded"),
    "FrameLimits.max_open_calls": ("streams", "test_streams_that_open_before_the_first_question"),
    "FrameLimits.max_silent_calls": ("no_body", "test_a_crowd_of_streams"),
    "FrameLimits.max_unserved_calls": ("unknown_method", "test_a_crowd_of_streams"),
    "FrameLimits.few_calls": ("no_body", "FrameGuardTest.BeyondAFewCallsAllConnectionsShareSilentAndNewOnes"),
    "FrameLimits.resets": ("resets", "test_calls_that_are_cancelled"),
    "FrameLimits.few_resets": ("resets_4_clients", "test_deadlines_that_pass_harm_no_other_call"),
    "FrameLimits.resets_of_all": ("resets_4_clients", "FrameGuardTest.OnceAllHaveResetManyEachMayResetFew"),
    "FrameLimits.max_unfinished_bytes": ("unfinished", "FrameGuardTest.MessagesThatAreNotWholeAreBoundedTogether"),
    "FrameLimits.max_unread_replies": ("settings_unread", "test_a_ping_for_each_answer"),
    "FrameLimits.max_refusal_bytes": ("streams", "test_calls_beyond_the_limit_are_refused_and_the_connection_goes_on"),
    "FrameLimits.work": ("pings", "test_a_ping_for_each_answer"),
    "FrameLimits.work_of_address": ("pings", "FrameGuardTest.AnAddressHasARateOfWorkAndOthersAreNotSlowed"),
    "FrameLimits.work_of_all": ("unknown_methods", "FrameGuardTest.AllConnectionsTogetherHaveARateOfWorkAndWhoeverUsesLittleIsNotSlowed"),
    "MessageLimits.workers": ("unfinished", "MessageLimitsTest.AWorkersUnfinishedMessagesMayTakeLongAndHaveABudgetOfTheirOwn"),
    "MessageLimits.others": ("unfinished", "MessageLimitsTest.WhoIsTheSlowestGoesWhenAllHaveTooMuch"),
    "MessageLimits.window": ("unread_answers", "test_large_queries_of_many_threads"),
    "MessageLimits.windows": ("unread_answers", "test_large_queries_of_many_threads"),
    "MessageLimits.patience": ("unread_answers", "MessageLimitsTest.WhoIsNotAnsweredGoesForWhoWaitsForAWindow"),
    "MessageLimits.grace": ("unfinished", "MessageLimitsTest.AStrangersMessageMayNotTakeForEver"),
    "MessageLimits.bytes_per_second": ("unfinished", "MessageLimitsTest.AStrangersMessageMayNotTakeForEver"),
    "RelayOptions.first_call_timeout": ("half_preface", "ConnectionRelayTest.WhoseFirstCallIsStillBeingAnsweredStays"),
    "RelayOptions.hand_overs": ("settings_only", "ConnectionRelayTest.GrpcGetsSoManyNewcomersASecondAndTheOthersWait"),
    "RelayOptions.unserved_stay": ("settings_only", "test_ten_thousand_streams_where_they_are_asked_for"),
    "RelayOptions.max_greeted": ("settings_only", "ConnectionRelayTest.WhoCrowdsTheWaitIsClosedAndOthersJoinIt"),
    "RelayOptions.many": ("idle", "IdleConnectionsTest.WhereThereAreManyTheIdleGoThoughPlacesAreFree"),
    "RelayOptions.idle_stay": ("idle_few_descriptors", "IdleConnectionsTest.WhoIsIdleForTheLongestTimeGoesWhereNoPlaceIsFree"),
    "RelayOptions.idle_call_stay": ("idle", "IdleConnectionsTest.AnOpenCallStaysForLongerAndAWorkerForEver"),
    "RelayOptions.max_unproven_for_idle": ("idle", "IdleConnectionsTest.AFloodOfNewcomersReplacesItselfAndNotTheIdle"),
    "RelayOptions.unread_stay": ("amplified", "ConnectionRelayTest.WhoReadsNothingOfItsAnswersIsClosedAndAWorkerIsNot"),
    "AdmissionLimits.total": ("idle_few_descriptors", "test_newcomers_beyond_the_places_hear_why"),
    "AdmissionLimits.per_host": ("idle", "AdmissionTest.AHostHasItsHalf"),
    "AdmissionLimits.kept": ("idle", "AdmissionTest.PlacesAreKeptForWorkersThatReturnAndForTheProcessItself"),
    "AdmissionLimits.newcomers": ("idle", "AdmissionTest.WhoHasComeFurtherStays"),
    "AdmissionLimits.unserved": ("settings_only", "test_ten_thousand_streams_where_they_are_asked_for"),
}


def fields(text, struct):
    """Its fields, in order."""
    body = re.search(rf"^struct {struct} {{\n(.*?)^}};", text, re.M | re.S)[1]
    names = []
    for statement in re.sub(r"//.*", "", body).split(";"):
        # Without initializers: a type, then names.
        declared = re.sub(r"{[^}]*}|= *[^,]+", "", statement).strip()
        names += re.findall(r"(\w+)\s*(?:,|$)", declared)
    return names


def complaints(source, table):
    found, door = [], source / "lib" / "rpc" / "door"
    limits = {f"{struct}.{field}" for struct, file in STRUCTS.items() for field in fields((door / file).read_text(), struct) if field not in PARTS}
    units = "".join(path.read_text() for path in door.glob("*_test.cc"))
    tests = {f"{suite}.{test}" for suite, test in re.findall(r"^TEST(?:_F)?\((\w+), (\w+)\)", units, re.M)}
    attacks = set(re.findall(r'^    "(\w+)": \(\[', (source / "tests/fault/attack_test.py").read_text(), re.M))
    guests = set(re.findall(r"def (test_\w+)", (source / "tests/fault/guests_test.py").read_text()))
    found += [f"{limit}: has no attack and no guest in tests/lint/door_limits.py" for limit in sorted(limits - set(table))]
    found += [f"{limit}: is no limit of lib/rpc/door" for limit in sorted(set(table) - limits)]
    for limit, (attack, guest) in table.items():
        found += [f"{limit}: there is no attack {attack}"] if attack not in attacks | tests else []
        found += [f"{limit}: there is no guest {guest}"] if guest not in guests | tests else []
    return limits, found


def self_test():
    text = "struct Some {\n  /// Words; more.\n  size_t a = 1 << 2;  ///< b = 3;\n  base::Rate c = {1, 2}, d = {3, 4};\n  absl::Duration e;\n};\n"
    assert fields(text, "Some") == ["a", "c", "d", "e"], fields(text, "Some")
    source = pathlib.Path(__file__).resolve().parents[2]
    table = dict(TESTS, **{"FrameLimits.not_there": ("idle", "test_a_crowd_of_streams"), "FrameLimits.work": ("no_attack", "no_guest")})
    del table["MessageLimits.window"]
    found = complaints(source, table)[1]
    assert [complaint.split(":")[0] for complaint in found] == ["MessageLimits.window", "FrameLimits.not_there", "FrameLimits.work", "FrameLimits.work"], found
    print("door_limits: the self-test passed")


def main():
    if sys.argv[1] == "--self-test":
        return self_test()
    limits, found = complaints(pathlib.Path(sys.argv[1]), TESTS)
    for complaint in found:
        print(complaint)
    print(f"door_limits: {len(limits)} limits, {len(found)} complaints")
    return 1 if found or not limits else 0


if __name__ == "__main__":
    sys.exit(main())
