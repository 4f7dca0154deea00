// Fills the page. Names of files and classes are inserted as text, so they cannot become markup.
"use strict";

const Show = (() => {
  const $ = (id) => document.getElementById(id);

  function el(name, options = {}, ...children) {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(options)) {
      if (key === "class") node.className = value;
      else if (key === "text") node.textContent = value;
      else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else node.setAttribute(key, value);
    }
    node.append(...children);
    return node;
  }

  const percent = (value) => value === null ? "unknown" : `${(100 * value).toFixed(value < 0.1 || value > 0.99 ? 1 : 0)} %`;

  function picture(row, size, alt) {
    const image = el("img", { alt });
    image.addEventListener("load", () => { image.classList.toggle("tiny", Math.max(image.naturalWidth, image.naturalHeight) <= 64); });
    image.addEventListener("error", () => { image.replaceWith(el("p", { class: "quiet", text: "This picture cannot be shown." })); });
    image.src = Talk.picture(row, size);
    return image;
  }

  // A note on columns that are not shown.
  const goesOn = (more) => more ? [el("p", { class: "quiet", text: `… and ${more.toLocaleString("en")} more column${more > 1 ? "s" : ""}.` })] : [];

  // The other columns in the row of a text.
  function cells({ cells: pairs, more }) {
    const parts = pairs.map(([name, cell]) => el("div", {}, el("dt", { text: name }), el("dd", { text: cell === "" ? "–" : cell })));
    return el("div", { class: "cells", tabindex: "0", role: "group", "aria-label": "Other columns" }, el("dl", {}, ...parts), ...goesOn(more));
  }

  function large(item) {
    const content = item.content;
    if (content.kind === "picture") return picture(item.row, "large", `Sample ${item.id}`);
    if (content.kind === "text") {
      const box = el("div", { class: "text", tabindex: "0", role: "group", "aria-label": "Text", text: content.text || "(empty text)" });
      if (content.cut) box.append(el("p", { class: "quiet", text: "… the text is longer." }));
      return content.cells.length ? el("div", { class: "stack" }, box, cells(content)) : box;
    }
    if (content.kind === "row") {
      const body = el("tbody", {}, ...content.cells.map(([name, cell]) =>
        el("tr", {}, el("th", { scope: "row", text: name }), el("td", { text: cell === "" ? "–" : cell }))));
      return el("div", { class: "row", tabindex: "0", role: "group", "aria-label": "Row" }, el("table", {}, body), ...goesOn(content.more));
    }
    return el("p", { class: "quiet", text: `This sample cannot be shown: ${content.reason || "unknown"}.` });
  }

  const often = (pairs, names) => pairs.map(([code, count]) => `${names[code] ?? "no label"} (${count.toLocaleString("en")})`).join(", ");

  function small(item, names) {
    const content = item.content;
    const times = item.times > 1 && content.kind !== "picture" ? [el("span", { class: "times", text: `${item.times.toLocaleString("en")} times: ${often(item.labels, names)}` })] : [];
    if (content.kind === "picture") return el("li", { title: item.id }, picture(item.row, "small", `Selected sample ${item.id}`));
    if (content.kind === "text") return el("li", { class: "near" }, ...times, content.text.slice(0, 400));
    if (content.kind === "row") {
      const cells = content.cells.slice(0, 10).map(([name, cell]) => el("span", { class: "cell" }, el("span", { text: name }), cell === "" ? "–" : cell));
      return el("li", { class: "near" }, ...times, ...cells);
    }
    return el("li", { class: "near quiet", text: "cannot be shown" });
  }

  function neighbours(groups, names, kind) {
    const parts = groups.flatMap((group) => {
      const head = el("h3", {}, "Nearest selected as ", el("strong", { text: names[group.label] }));
      if (!group.items.length) return [head, el("p", { class: "quiet", text: "none was selected" })];
      return [head, el("ul", { class: kind === "pictures" ? "pictures" : "lines" }, ...group.items.map((near) => small(near, names)))];
    });
    $("neighbours").replaceChildren(...parts);
  }

  // An identical sample with another label: one of the two labels is wrong.
  function same(item, pairs, names, kind) {
    const others = pairs.filter(([code]) => code !== item.given);
    $("same").hidden = !others.length;
    if (!others.length) return;
    const here = pairs.filter(([code]) => code === item.given);
    const what = { pictures: "The same picture", text: "The same text", table: "A row with the same features" }[kind] ?? "The same sample";
    $("same").textContent = `${what} occurs elsewhere with another label: ${often(others, names)}`
      + (here.length ? `; and with this one: ${often(here, names)}.` : ".");
  }

  function stamp(item, names) {
    const box = $("stamp");
    box.hidden = !item.decision;
    const told = { keep: "Kept", drop: "Dropped", relabel: `Changed to ${names[item.label] ?? "?"}` };
    box.textContent = item.decision ? told[item.decision] : "";
  }

  function label(id, name, missing) {
    const box = $(id);
    // A long name breaks after its separators first: <wbr> allows it, and is not part of the text.
    const parts = (name ?? missing).split(/(?<=[_\-/.])/);
    box.replaceChildren(...parts.flatMap((part, i) => (i ? [document.createElement("wbr"), part] : [part])));
    box.classList.toggle("none", name === undefined || name === null);
  }

  // Probabilities if the run estimated them, else the suspicion and the probability of the given label.
  function numbers(item, names, judged) {
    if (!item.judged) return [`Not assessed, ${item.verdict}`, `The model hardly ever predicts ${names[item.given]}`];
    if (item.suspicion === null) return [`Suspicion unknown, ${item.verdict}`];
    const parts = judged
      ? [`${percent(item.suspicion)} likely wrong, ${item.verdict}`]
      : [`Suspicion ${item.suspicion.toFixed(2)}, ${item.verdict}`];
    if (item.likely !== null) parts.push(`${percent(item.likely)} likely ${names[item.suggested]}`);
    else if (item.probability !== null) parts.push(`The model gives the given label ${percent(item.probability)}`);
    return parts;
  }

  function item(item, names, judged) {
    $("sample").replaceChildren(large(item));
    label("given-label", names[item.given], "unknown");
    label("suggested-label", item.suggested >= 0 ? names[item.suggested] : null, "no other");
    $("numbers").replaceChildren(...numbers(item, names, judged).map((text) => el("span", { text })));
    $("sample-id").textContent = item.id;
    $("same").hidden = true;
    stamp(item, names);
    const keep = $("do-keep").querySelector("span"), take = $("do-suggested").querySelector("span");
    keep.textContent = `Keep ${names[item.given] ?? ""}`;
    take.textContent = item.suggested >= 0 ? `Take ${names[item.suggested]}` : "No suggestion";
    $("do-suggested").disabled = item.suggested < 0;
  }

  function end(total, name) {
    const box = total
      ? el("div", { class: "end" }, el("h2", { text: "All decided." }), el("p", { text: "Nothing is left in this queue. Take the corrected labels with" }),
        el("p", {}, el("code", { text: `labelsieve export ${name} --what cleaned --to cleaned.csv` })), el("p", { class: "quiet", text: "The arrows go back through what you decided." }))
      : el("div", { class: "end" }, el("h2", { text: "Nothing here." }), el("p", { text: "No sample passes this filter." }));
    $("sample").replaceChildren(box);
    $("neighbours").replaceChildren();
    for (const id of ["given-label", "suggested-label", "numbers", "sample-id"]) $(id).textContent = "";
    $("stamp").hidden = $("same").hidden = true;
  }

  function progress(state) {
    $("progress").max = Math.max(state.total, 1);
    $("progress").value = state.decided;
    const count = (n) => n.toLocaleString("en");
    const at = state.current === null ? "" : `${count(state.at + 1)} of ${count(state.total)} · `;
    $("progress-text").textContent = `${at}${count(state.decided)} decided · ${count(state.left)} left`;
  }

  function saved(text, bad = false) {
    $("saved").textContent = text;
    $("saved").classList.toggle("bad", bad);
  }

  function notice(text) {
    $("notice").hidden = !text;
    $("notice").textContent = text || "";
  }

  function banner(sentences) {
    $("banner").hidden = !sentences.length;
    $("banner").textContent = sentences.join("\n");
  }

  function matrix(answer, names, open) {
    const cells = new Map(answer.cells.map(([given, suggested, count, left]) => [`${given} ${suggested}`, { given, suggested, count, left }]));
    const most = Math.max(1, ...answer.cells.map((cell) => cell[3]));
    const head = el("tr", {}, el("td", { class: "same" }), ...answer.classes.map((code) => el("th", { scope: "col", title: names[code] }, el("span", { text: names[code] }))));
    const rows = answer.classes.map((given) => el("tr", {}, el("th", { scope: "row", title: names[given], text: names[given] }),
      ...answer.classes.map((suggested) => {
        const cell = cells.get(`${given} ${suggested}`);
        if (given === suggested || !cell) return el("td", { class: given === suggested ? "same" : "" });
        const level = cell.left ? `h${Math.ceil(10 * cell.left / most)}` : "done";
        const told = `${names[given]}, suggested ${names[suggested]}: ${cell.count} suspects, ${cell.left} left`;
        return el("td", {}, el("button", { type: "button", class: level, title: told, "aria-label": told, text: String(cell.left || cell.count), onclick: () => open(given, suggested) }));
      })));
    $("matrix-table").replaceChildren(el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows)));
    if (!answer.cells.length) $("matrix-table").replaceChildren(el("p", { text: "There are no suspects." }));
    $("matrix-told").textContent = "Rows are given labels, columns are suggested labels. A number opens its samples; decided ones are struck through."
      + (answer.hidden > 0 && answer.classes.length ? ` The ${answer.classes.length} most confused classes are shown.` : "");
  }

  return { $, el, item, end, progress, saved, notice, banner, stamp, same, neighbours, matrix };
})();
