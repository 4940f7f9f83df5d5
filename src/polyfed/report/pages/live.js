// The live page: asks what is new once a second, and more rarely while nobody answers.
const SECOND = 1000, LONGEST = 10 * SECOND;
const byId = (id) => document.getElementById(id);
let version = "", pause = SECOND, chartsShown = null;

// Only what changed is written, so that a screen reader and a selection are left in peace.
function setText(id, text) { if (byId(id).textContent !== text) byId(id).textContent = text; }

function setState(state, sentence) {
  byId("state").dataset.state = state;
  setText("state", state);
  setText("sentence", sentence);
}

function show(found) {
  document.title = `${found.state}: ${found.title}`;
  setText("title", found.title);
  setState(found.state, found.sentence);
  byId("progress").max = Math.max(1, found.rounds);
  byId("progress").value = found.round;
  byId("facts").innerHTML = found.facts; // the server has escaped every name in these pieces
  byId("rejections").innerHTML = found.rejections;
  figures = found.figures;
  showCharts(found.charts);
}

// The titles of charts change with the rounds; the charts themselves, and what is chosen there, stay.
function showCharts(html) {
  if (html === chartsShown) return drawAll();
  chartsShown = html;
  const fresh = document.createElement("div");
  fresh.innerHTML = html;
  const now = [...byId("charts").querySelectorAll(".chart")], next = [...fresh.querySelectorAll(".chart")];
  const shape = (cards) => cards.map((card) => [card.dataset.chart, card.querySelector("select")?.innerHTML]);
  if (now.length && JSON.stringify(shape(now)) === JSON.stringify(shape(next))) {
    now.forEach((card, i) => {
      card.querySelector(".chart-title").textContent = next[i].querySelector(".chart-title").textContent;
    });
  } else {
    byId("charts").replaceChildren(...fresh.childNodes);
  }
  drawAll();
}

async function look() {
  try {
    const answer = await fetch(`/data?version=${version}`, { signal: AbortSignal.timeout(LONGEST) });
    if (!answer.ok) throw new Error(answer.statusText);
    const found = await answer.json();
    if (found.trouble) setState("stopped", found.trouble);
    else if (found.version !== version) show(found);
    version = found.version;
    pause = SECOND;
  } catch {
    // When it answers again, all is shown anew.
    version = "";
    setState("away", "The page's server does not answer; what you see may be old.");
    pause = Math.min(2 * pause, LONGEST);
  }
  setTimeout(look, pause);
}
look();
