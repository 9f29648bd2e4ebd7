import json

from guest.records.codec import from_json, to_json
from guest.records.probe import CaseResult, Part, PartResult, ProbeRequest
from guest.records.run import Framework
from orchestrator.agent.protocol import parse_message
from orchestrator.experiments import probe

RUNS = 100  # the most that --runs takes


class Answering:
    """An agent that computes nothing: every run of a case gives the same."""

    def __init__(self, *_):
        pass

    def greeting(self):
        pass

    def send(self, request):
        self._request = from_json(ProbeRequest, request["request"], "request")

    def answer(self, *_):
        runs = self._request.runs
        results = [
            CaseResult(
                case=case,
                parts=tuple(
                    PartResult(
                        part=part,
                        hashes=("0123456789abcdef",) * runs,
                        seconds=(0.00012345678912,) * runs,
                        dtypes=(case.dtype,),
                    )
                    for part in Part
                ),
            )
            for case in self._request.cases
        ]
        body = to_json({"results": results, "environment": {"some": "where"}})
        return parse_message(json.dumps({"kind": "done", "run_id": "", "body": body}).encode())


def test_the_most_runs_of_all_operations_are_answered_in_messages_that_are_read(monkeypatch):
    monkeypatch.setattr(probe, "AgentClient", Answering)
    ask = probe.Ask(
        framework=Framework.TORCH,
        python="python3",
        threads=(1, 2),
        pattern="*",
        dtypes=("float32", "float64", "bfloat16"),
        quick=False,
        runs=RUNS,
    )
    wanted = probe.cases(ask)
    found, environment = probe.ProbeWorker(None, "agent", ask, 1).ask(wanted, runs=RUNS, keep=False)
    assert tuple(result.case for result in found) == wanted
    assert len(found[-1].parts[0].hashes) == RUNS
    assert environment == {"some": "where"}
    assert len(probe.ProbeWorker(None, "agent", ask, 2).ask(wanted, runs=1, keep=True)[0]) == len(wanted)
