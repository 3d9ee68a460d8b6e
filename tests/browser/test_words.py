"""The words of a policy of one's own: reasons of their own in the page, with the time that the report says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.browser.conftest import replay

from tokenyard.explain.report.summary import summarize
from tokenyard.units import duration
from viewer_sample import crowded

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

POLICY = """
from tokenyard import Policy
from tokenyard.policies import Refused

class Quota(Policy):
    def admits(self, request, view):
        if len(view.running) >= 3:
            return Refused("tenant_quota")
        if request.num_prompt_tokens > 2000 and view.running:
            return Refused("long_prompts_alone")
        return True
"""


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run under a policy that refuses for two reasons."""
    folder = tmp_path_factory.mktemp("words")
    (folder / "quota.py").write_text(POLICY)
    (folder / "crowded.jsonl").write_text(crowded())
    policy = f"--scheduling-policy={folder / 'quota.py'}:Quota"
    return replay(folder / "run", str(folder / "crowded.jsonl"), policy, "--advice=none")


def test_words_of_a_policy_are_reasons_of_their_own(open_files: Callable[..., Page], refused: Path) -> None:
    told = summarize(refused).recorded_reasons["policy_refused"]
    assert told.words is not None
    assert set(told.words) == {"tenant_quota", "long_prompts_alone"}
    assert sum(told.words.values()) == pytest.approx(told.seconds)
    page = open_files(refused, state="tab=overview")
    expect(page.get_by_role("region", name="What requests waited for")).to_contain_text("tenant_quota")
    page.get_by_role("tab", name="Statistics").click()
    page.wait_for_selector(".statistics[aria-busy=false]")
    section = page.get_by_role("region", name="What limited admission")
    for word, seconds in told.words.items():
        row = section.locator("li, tr").filter(has_text=f"policy_refused: {word}").first
        expect(row).to_contain_text(duration(seconds))
    page.get_by_label("Filter", exact=True).fill("reason:long_prompts")
    expect(page.locator("#filter-state")).to_contain_text("steps")
    page.get_by_role("tab", name="Requests").click()
    page.get_by_role("button", name="Table", exact=True).click()
    names = page.locator(".request-table tbody th, table tbody th")
    expect(names.filter(has_text="report").first).to_be_visible()  # the one long prompt waited for it
