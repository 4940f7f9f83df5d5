// Tables that sort by a column and show what fits a filter.
function sortBy(table, at, button) {
  const down = button.parentElement.getAttribute("aria-sort") === "descending";
  for (const heading of table.querySelectorAll("th[aria-sort]")) heading.setAttribute("aria-sort", "none");
  button.parentElement.setAttribute("aria-sort", down ? "ascending" : "descending");
  const key = (row) => {
    const cell = row.cells[at];
    return at === 0 ? cell.textContent : cell.dataset.value === undefined ? null : Number(cell.dataset.value);
  };
  const body = table.tBodies[0], sign = down ? 1 : -1;
  const compare = (a, b) => {
    if (a === null || b === null) return (a === null) - (b === null); // what is missing is last, whichever way
    return sign * (at === 0 ? a.localeCompare(b, undefined, { numeric: true }) : a - b);
  };
  body.append(...[...body.rows].sort((one, other) => compare(key(one), key(other))));
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("th[aria-sort] button");
  if (button) sortBy(button.closest("table"), button.parentElement.cellIndex, button);
});
document.addEventListener("input", (event) => {
  const table = event.target.dataset.filters && document.getElementById(event.target.dataset.filters);
  if (!table) return;
  const wanted = event.target.value.trim().toLowerCase();
  for (const row of table.tBodies[0].rows) row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
});
