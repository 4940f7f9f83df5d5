// The report: one run at a time.
figures = JSON.parse(document.getElementById("figures").textContent);
const choice = document.getElementById("run-choice");

function showRun() {
  for (const run of document.querySelectorAll(".run")) run.hidden = Boolean(choice) && run.dataset.run !== choice.value;
  drawAll();
}
if (choice) choice.addEventListener("change", showRun);
showRun();
