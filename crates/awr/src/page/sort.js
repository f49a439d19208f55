/* Sorts a table by a column when its title is pressed. Without this script the page lacks nothing but that.
   Not one angle bracket in here: the page is checked for tags as plain text. */
(function () {
  "use strict";
  var doc = document;
  function key(row, column) {
    var cell = row.cells[column];
    if (!cell) { return ""; }
    var value = cell.getAttribute("data-v");
    return value === null ? cell.textContent.trim() : Number(value);
  }
  function compare(a, b) {
    if (typeof a === "number" ? typeof b === "number" : false) { return a - b; }
    return String(a).localeCompare(String(b));
  }
  function press(event) {
    var head = event.currentTarget.closest("th");
    var body = head.closest("table").tBodies[0];
    var column = head.cellIndex;
    var figures = head.classList.contains("figure");
    var first = figures ? "descending" : "ascending";
    var second = figures ? "ascending" : "descending";
    var now = head.getAttribute("aria-sort");
    var next = now === first ? second : now === second ? "none" : first;
    var rows = Array.prototype.slice.call(body.rows);
    rows.forEach(function (row, index) {
      if (row.place === undefined) { row.place = index; }
    });
    var sign = next === "descending" ? -1 : 1;
    var keyed = rows.map(function (row) { return { row: row, key: key(row, column) }; });
    keyed.sort(function (a, b) {
      var order = 0;
      if (next !== "none") {
        var empty = (a.key === "" ? 1 : 0) - (b.key === "" ? 1 : 0);
        if (empty !== 0) { return empty; }
        order = sign * compare(a.key, b.key);
      }
      return order === 0 ? a.row.place - b.row.place : order;
    });
    keyed.forEach(function (each) { body.appendChild(each.row); });
    Array.prototype.forEach.call(head.parentNode.cells, function (other) {
      other.setAttribute("aria-sort", other === head ? next : "none");
    });
  }
  Array.prototype.forEach.call(doc.querySelectorAll("table.sortable"), function (table) {
    Array.prototype.forEach.call(table.tHead.rows[0].cells, function (head) {
      var button = doc.createElement("button");
      button.type = "button";
      button.title = head.title;
      while (head.firstChild) { button.appendChild(head.firstChild); }
      if (button.textContent.trim() === "") { button.setAttribute("aria-label", "first column"); }
      head.appendChild(button);
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", press);
    });
  });
  doc.documentElement.setAttribute("data-ready", String(Math.round(performance.now())));
}());
