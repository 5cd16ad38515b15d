"""The list of policies is one: what the configuration accepts, the suites run with, and the core has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from targetmem import MemoryManager
from targetmem.config import POLICIES

CORE = Path(__file__).parents[2] / "csrc"


def test_the_core_has_the_same_policies() -> None:
    """Each policy of the core can be chosen, and so is run by every suite that goes over `POLICIES`."""
    texts = [path.read_text() for path in CORE.glob("*.c")]
    assert set(POLICIES) == {
        name for text in texts for name in re.findall(r'tm_policy tmi_\w+ = \{"(\w+)"', text)
    }


@pytest.mark.parametrize("policy", POLICIES)
def test_each_policy_is_the_managers(policy: str) -> None:
    """A manager has the policy that was asked for."""
    manager = MemoryManager(lambda size, alignment: 1 << 40, lambda address, size: None, policy=policy)
    assert policy == manager.policy
