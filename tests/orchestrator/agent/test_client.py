"""An agent that speaks without end."""

import sys
import time

import pytest

from orchestrator.agent.client import AgentClient
from orchestrator.cores.leases import host_cores
from orchestrator.errors import GuestError
from orchestrator.transport.connection import LocalConnection

BEATS = """
import time
while True:
    print('{"kind": "heartbeat", "run_id": "r", "body": {}}', flush=True)
    time.sleep(0.02)
"""


@pytest.mark.needs("studies")
def test_an_agent_that_sends_signs_of_life_and_no_answer_is_given_up_in_the_end(tmp_path):
    (tmp_path / "agent.py").write_text(BEATS)
    connection = LocalConnection(tmp_path, sys.executable, host_cores(), None, {})
    try:
        client = AgentClient(connection, "agent.py", [], {})
        began = time.monotonic()
        with pytest.raises(GuestError, match="the agent did not answer within 1 s, which limits any task"):
            client.answer(60, 1, "r")
        assert time.monotonic() - began < 60
    finally:
        connection.close()
