"""The report: its sections, what is missing, what is escaped, and that it asks nothing of the network."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from run_folders import CLIENTS, make_run, results

from polyfed.errors import DataError, UsageError
from polyfed.folders.documents import write_document
from polyfed.report import write_report

SECTIONS = (
    "clients",
    "data",
    "curves",
    "reliability",
    "predicted",
    "latents",
    "learned",
    "bytes",
    "rejections",
    "config",
)
VOID = ("meta", "link", "br", "input", "img")


class Page(HTMLParser):
    """The elements of a page, with what they say; rejects tags that do not match."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str, str] = {}
        self.text = ""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[self.elements[-1][1].get("id") or f"script {len(self.scripts)}"] = data
        elif not self.open or self.open[-1] != "style":
            self.text += data

    @property
    def figures(self):
        return json.loads(self.scripts["figures"])

    def ids(self):
        return [attrs["id"] for _, attrs in self.elements if "id" in attrs]


def report(tmp_path, *folders) -> tuple[str, Page]:
    html = write_report(folders, tmp_path / "report.html").read_text()
    return html, Page(html)


def words(text: str) -> str:
    return " ".join(text.split())


def test_every_section_is_there_and_says_what_one_sees(tmp_path):
    command = ["polyfed", "run", "--data", "my file.csv"]
    html, page = report(tmp_path, make_run(tmp_path / "a", command=command))
    assert {f"run0-{name}" for name in SECTIONS} <= set(page.ids())
    assert html.count('class="says"') == len(SECTIONS) + 2  # the results, and what clients gain
    assert "polyfed run --data 'my file.csv'" in page.text
    for said in ("numpy", "2.0.0", "seed 0", "4 of 4 rounds", "3 clients", "12 s", "0.0847", "2.5"):
        assert said in page.text


def test_how_options_were_chosen_is_told_only_if_they_were(tmp_path):
    run = make_run(tmp_path / "a")
    assert "tried" not in report(tmp_path, run)[1].ids()
    tried = [("local", "kernel=<rbf>", "1.5", False), ("local", "kernel=linear", "0.5", True)]
    html = write_report([run], tmp_path / "report.html", tried=tried).read_text()
    assert "tried" in Page(html).ids()
    assert "<td>kernel=&lt;rbf&gt;</td>" in html
    assert "<strong>kernel=linear</strong> (chosen)" in html


def test_ids_are_unique_and_every_chart_has_its_figures(tmp_path):
    _, page = report(tmp_path, make_run(tmp_path / "a"), make_run(tmp_path / "b", seed=1))
    assert len(page.ids()) == len(set(page.ids()))
    drawn = [attrs for tag, attrs in page.elements if tag == "figure"]
    assert {attrs["data-chart"] for attrs in drawn} == set(page.figures)
    assert {attrs["data-control"] for attrs in drawn} - {""} <= set(page.ids())
    assert all(attrs["aria-label"] for _, attrs in page.elements if attrs.get("class") == "plot")


def test_every_choice_is_labelled(tmp_path):
    _, page = report(tmp_path, make_run(tmp_path / "a"), make_run(tmp_path / "b", seed=1))
    labelled = {attrs["for"] for tag, attrs in page.elements if tag == "label"}
    assert labelled == {attrs["id"] for tag, attrs in page.elements if tag in ("select", "input")}


def test_the_report_asks_nothing_of_the_network(tmp_path):
    html, page = report(tmp_path, make_run(tmp_path / "a"))
    assert re.findall(r"https?:\S+", html) == ['http://www.w3.org/2000/svg";'], "the name of SVG, which nobody asks for"
    links = [value for _, attrs in page.elements for name, value in attrs.items() if name in ("src", "href")]
    assert all(link.startswith(("#", "data:")) for link in links)


NASTY = "<script>alert(1)</script> & \"'</title>"


def test_names_are_only_names(tmp_path):
    folder = make_run(
        tmp_path / "a",
        method=NASTY,
        clients=(NASTY, "bern"),
        tasks={NASTY: "regression", "high": "binary"},
        options={NASTY: NASTY},
        rejected={1: {NASTY: NASTY}},
        command=["polyfed", NASTY],
    )
    html, page = report(tmp_path, folder)
    assert "<script>alert" not in html
    assert page.text.count("<script>alert(1)</script>") > 8, "shown as it is written"
    assert len(page.scripts) == 2
    assert "<script" not in json.dumps(page.figures), "plotly would take tags for its own"


def test_several_runs_are_compared_and_each_can_be_chosen(tmp_path):
    def score(best):
        return lambda client, task, metric, round: 0.9 if (metric == "accuracy") == best else 0.5

    folders = [
        make_run(tmp_path / f"{method}-{seed}", method=method, seed=seed, score=score(method == "mul"))
        for method in ("mul", "local")
        for seed in (0, 1)
    ]
    html, page = report(tmp_path, *folders)
    assert "Comparison of 2 methods" in page.text
    table = html[html.index('class="scores"') : html.index("<details>")]
    bold = [(re.findall(r'row">([^<]+)', row), row.count("<strong>")) for row in table.split("<tr>")[2:]]
    assert bold == [(["mul"], 2), (["local"], 0)]
    assert "standard deviation over the seeds" in words(page.text)
    options = [
        attrs["value"] for tag, attrs in page.elements if tag == "option" and (attrs["value"] or "").startswith("run")
    ]
    assert options == ["run0", "run1", "run2", "run3"]
    assert "all-curve-0" in page.figures


def test_a_comparison_stays_small_enough_to_be_sent(tmp_path):
    tasks = {"height": "regression", "high": "binary", "stage": "multiclass", "visits": "count"}
    clients = [f"client {i}" for i in range(60)]
    found = results(clients, tasks, one_dimensional=False, n=100)
    folders = [
        make_run(tmp_path / f"{method}-{seed}", method=method, seed=seed, clients=clients, tasks=tasks, found=found)
        for method in ("mul", "local", "fedavg", "ditto")
        for seed in (0, 1, 2)
    ]
    html, _ = report(tmp_path, *folders)
    assert len(html.encode()) < 1_500_000


def test_what_clients_gain_and_how_methods_rank_is_shown(tmp_path):
    _, page = report(tmp_path, make_run(tmp_path / "a"), make_run(tmp_path / "b", method="local"))
    assert {"ranks", "gains"} <= set(page.ids())
    assert {"all-ranks", "all-gain-0", "all-gain-1"} <= set(page.figures)
    _, alone = report(tmp_path, make_run(tmp_path / "a"))
    assert "polyfed compare --methods pfed-mul,local" in alone.text


def test_doubts_guesses_and_no_privacy_are_said(tmp_path):
    def score(client, task, metric, round):
        return {"skill": -0.5, "baseline": 3.25}.get(metric, 1.0)

    folder = make_run(tmp_path / "a", score=score, guess=True, described={"pools_data": True})
    html, page = report(tmp_path, folder)
    assert page.text.count("no better than guessing each client's mean") == 1
    assert "all rows pooled: no privacy" in page.text
    assert "3.25" in html[html.index("<tfoot>") : html.index("</tfoot>")]


def test_runs_of_other_clients_are_not_for_comparison(tmp_path):
    _, page = report(tmp_path, make_run(tmp_path / "a"), make_run(tmp_path / "b", clients=CLIENTS[:2]))
    assert "should not be compared" in page.text


def test_a_report_waits_neither_for_torch_nor_for_tables():
    code = (
        "import sys, polyfed.report; print({'torch', 'pandas', 'sklearn', 'scipy', 'safetensors'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_one_folder_given_twice_is_one_run(tmp_path):
    folder = make_run(tmp_path / "a")
    _, page = report(tmp_path, folder, folder / ".." / "a")
    assert "run-choice" not in page.ids()


def test_a_run_in_progress_is_shown_as_far_as_it_is(tmp_path):
    _, page = report(tmp_path, make_run(tmp_path / "a", completed=2, found=None))
    assert "2 of 4 rounds so far" in page.text
    assert page.text.count("There is no results.json yet") == 7
    assert "run0-curve-0" in page.figures


def test_a_run_before_its_first_round(tmp_path):
    _, page = report(tmp_path, make_run(tmp_path / "a", completed=0, found=None))
    assert "Nothing has been evaluated yet." in page.text
    assert "No round has been completed yet." in page.text
    assert page.figures == {}


@pytest.mark.parametrize("part", ["predictions", "latents", "model", "tasks"])
@pytest.mark.parametrize("how", ["absent", "null", "empty"])
def test_a_part_that_is_missing_is_said(tmp_path, part, how):
    found = results()
    if how == "absent":
        del found[part]
    else:
        found[part] = None if how == "null" else {}
    _, page = report(tmp_path, make_run(tmp_path / "a", found=found))
    said = {
        "predictions": ["No task with classes has been predicted.", "No task with numbers has been predicted."],
        "latents": ["No latent function can be drawn" if how == "empty" else "too many inputs to look at"],
        "model": ["The server does not learn it", "The server does not learn them"],
        "tasks": ["No task with classes has been predicted.", "No latent function can be drawn"],
    }
    for sentence in said[part]:
        assert sentence in page.text


@pytest.mark.parametrize(
    ("content", "said"), [("{", "cannot be read"), ('{"format": 9}', "another version"), ("[]", "it has no digest")]
)
def test_results_that_cannot_be_read_are_said(tmp_path, content, said):
    folder = make_run(tmp_path / "a")
    (folder / "results.json").write_text(content)
    _, page = report(tmp_path, folder)
    assert said in page.text


def test_rejections_lost_rounds_and_warnings_are_shown(tmp_path):
    folder = make_run(tmp_path / "a", rejected={2: {"bern": "its norm is too large"}})
    lost = {"round": 4, "sampled": [], "rejected": {}, "used": False, "bytes_down": 0, "bytes_up": 0, "metrics": {}}
    with (folder / "events.jsonl").open("a") as file:
        file.write(json.dumps({"event": "round", **lost}) + "\n")
    with (folder / "timing.jsonl").open("a") as file:
        file.write(json.dumps({"time": 0, "warning": "a checkpoint was passed over"}) + "\n")
    _, page = report(tmp_path, folder)
    for said in ("its norm is too large", "left in round 4: nothing was learned", "a checkpoint was passed over"):
        assert said in words(page.text)


def test_no_rejections_are_none(tmp_path):
    html, _ = report(tmp_path, make_run(tmp_path / "a"))
    assert "None." in html[html.index('id="run0-rejections"') : html.index('id="run0-config"')]


def test_validation_rows_stand_in_where_there_are_no_test_rows(tmp_path):
    _, page = report(tmp_path, make_run(tmp_path / "a", parts=("validation",)))
    assert "on the validation rows" in words(page.text)


def test_a_line_that_is_still_being_written_is_left_out(tmp_path):
    folder = make_run(tmp_path / "a")
    with (folder / "events.jsonl").open("a") as file:
        file.write('{"event": "round", "rou')
    assert "4 of 4 rounds" in report(tmp_path, folder)[1].text


def rejected(*arguments) -> str:
    with pytest.raises((DataError, UsageError)) as caught:
        write_report(*arguments)
    return str(caught.value)


def test_what_cannot_be_reported_on_is_rejected(tmp_path):
    out, folder = tmp_path / "report.html", make_run(tmp_path / "a")
    assert rejected([], out) == "write_report: there is no run to report on; give the folder of a run."
    assert rejected([tmp_path / "b"], out) == f"{tmp_path / 'b'}: there is no run.json; give the folder of a run."
    assert rejected([folder], tmp_path) == f"{tmp_path}: is a folder; give a file, such as {out}."
    not_here = folder / "run.json" / "report.html"
    assert rejected([folder], not_here).endswith("choose a place where you may write.")
    (folder / "events.jsonl").write_text('{"event": "future"}\nnot JSON\n')
    assert "events.jsonl, line 2: cannot be read (expected ident" in rejected([folder], out)
    (folder / "events.jsonl").write_text('{"event": "round"}\n')
    assert "events.jsonl, line 1: cannot be read (round: Field required)" in rejected([folder], out)
    (folder / "events.jsonl").write_text("[1]\n")
    assert "events.jsonl, line 1: cannot be read (input should be" in rejected([folder], out)
    write_document(folder / "run.json", {"method": "local"})
    assert "run.json: cannot be read (options: Field required)" in rejected([folder], out)
    (folder / "run.json").write_text('{"format": 1}')
    assert "run.json: is of another version of polyfed: format 1, not 3" in rejected([folder], out)
    (folder / "run.json").write_text('{"format": 3}')
    assert "run.json: is damaged (it has no digest)" in rejected([folder], out)
    (folder / "run.json").write_text("{")
    assert "run.json: cannot be read" in rejected([folder], out)
    assert not out.exists()
