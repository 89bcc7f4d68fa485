// Sorting and filtering of the table of edges. Without it the table is there in full.
"use strict";
(() => {
  const table = document.getElementById("edge-table");
  const filters = document.getElementById("edge-filters");
  if (table && filters) {
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const heads = [...table.tHead.rows[0].cells];
    const [words, group, state, count] =
      ["edge-words", "edge-group", "edge-state", "edge-count"].map((id) => document.getElementById(id));

    const value = (row, column, isNumber) => {
      const sort = row.cells[column].dataset.sort;
      return isNumber ? Number(sort) : sort;
    };
    const sortBy = (column) => {
      const head = heads[column];
      const isNumber = head.dataset.kind === "number";
      const first = isNumber ? "descending" : "ascending"; // large numbers and early letters come first
      const other = isNumber ? "ascending" : "descending";
      const order = head.getAttribute("aria-sort") === first ? other : first;
      heads.forEach((cell) => cell.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const compare = isNumber ? (a, b) => a - b : (a, b) => a.localeCompare(b, undefined, { numeric: true });
      rows.sort((a, b) => sign * compare(value(a, column, isNumber), value(b, column, isNumber)));
      body.append(...rows);
    };
    const filter = () => {
      const wanted = words.value.trim().toLowerCase();
      let shown = 0;
      for (const row of rows) {
        const fits = row.dataset.names.toLowerCase().includes(wanted)
          && (!group.value || row.dataset.group === group.value)
          && (!state.value || row.dataset.state.split(" ").includes(state.value));
        row.hidden = !fits;
        shown += fits ? 1 : 0;
      }
      count.textContent = `${shown} of ${rows.length} shown`;
    };

    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => sortBy(column));
    });
    words.addEventListener("input", filter);
    group.addEventListener("change", filter);
    state.addEventListener("change", filter);
    filters.hidden = false;
    filter();
  }

  // Paper has no way to open what is closed.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((details) => { details.open = true; });
  });
  addEventListener("afterprint", () => closed.forEach((details) => { details.open = false; }));
})();
