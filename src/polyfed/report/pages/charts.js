// The charts of a page. `figures` is filled by the page: chart → option → figure.
let figures = {};

function draw(card) {
  const control = card.dataset.control && document.getElementById(card.dataset.control);
  const figure = (figures[card.dataset.chart] || {})[control ? control.value : ""];
  const holder = card.querySelector(".plot");
  holder.hidden = !figure;
  card.querySelector(".nothing").hidden = Boolean(figure);
  if (figure) plot(holder, figure);
}

function drawAll() {
  for (const card of document.querySelectorAll(".chart")) {
    if (!card.closest("[hidden]")) draw(card);
  }
}

// One listener for all selectors, also those that come later.
document.addEventListener("change", (event) => {
  for (const card of document.querySelectorAll(".chart")) {
    if (event.target.id && card.dataset.control === event.target.id) draw(card);
  }
});

// Texts keep their size on a phone and on a wide screen, so charts are drawn anew when the page changes its width.
let drawnAt = innerWidth, resting;
addEventListener("resize", () => {
  clearTimeout(resting);
  resting = setTimeout(() => {
    if (innerWidth !== drawnAt) drawAll();
    drawnAt = innerWidth;
  }, 150);
});
