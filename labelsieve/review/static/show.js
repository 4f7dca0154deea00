// Fills the page. Names of files and classes are inserted as text, so they cannot become markup.
"use strict";

const Show = (() => {
  const $ = (id) => document.getElementById(id);
  const TILE_CELLS = 8, NEAR_CELLS = 24; // cells of a row that fit

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

  // A part of `whole`. A part that only rounding makes nothing or all of it is shown as a bound: "> 99.9" of 100.
  function rounded(part, digits, whole) {
    const text = part.toFixed(digits), step = 10 ** -digits;
    if (part < whole && Number(text) === whole) return `> ${(whole - step).toFixed(digits)}`;
    if (part > 0 && Number(text) === 0) return `< ${step.toFixed(digits)}`;
    return text;
  }

  const percent = (value) => value === null ? "unknown" : `${rounded(100 * value, (value > 0 && value < 0.1) || (value > 0.99 && value < 1) ? 1 : 0, 100)} %`;

  // The files of a run have six digits: an estimate of 0 or 1 in them is not exact either.
  const inside = (estimate) => Math.min(Math.max(estimate, 1e-6), 1 - 1e-6);
  const likely = (estimate) => percent(inside(estimate));
  const suspicion = (estimate) => rounded(inside(estimate), 2, 1);

  function picture(row, size, alt) {
    const image = el("img", { alt });
    image.addEventListener("load", () => { image.classList.toggle("tiny", Math.max(image.naturalWidth, image.naturalHeight) <= 64); });
    image.addEventListener("error", () => { image.replaceWith(el("p", { class: "quiet", text: "This picture cannot be shown." })); });
    image.src = Talk.picture(row, size);
    return image;
  }

  // A note on columns that are not shown.
  const goesOn = (more) => more ? [el("p", { class: "quiet", text: `… and ${more.toLocaleString("en")} more column${more > 1 ? "s" : ""}.` })] : [];

  // The beginning of a text or of a row. The style sheet cuts it after whole lines, with an ellipsis; the title has all of it.
  function brief(content, most) {
    if (content.kind === "text") return el("span", { class: "clip", title: content.text, text: content.text });
    if (content.kind !== "row") return el("span", { class: "quiet", text: "cannot be shown" });
    const pairs = content.cells.map(([name, cell]) => [name, cell === "" ? "–" : cell]);
    const shown = pairs.slice(0, most).flatMap(([name, cell]) => [el("span", { class: "cell" }, el("span", { class: "quiet" }, ...breakable(name)), " ", el("span", { text: cell })), " "]);
    const more = content.more + Math.max(pairs.length - most, 0);
    if (more) shown.push(el("span", { class: "quiet", text: `… and ${more.toLocaleString("en")} more` }));
    return el("span", { class: "clip", title: pairs.map((pair) => pair.join(": ")).join("\n") }, ...shown);
  }

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

  function small(item, names, withLabel = false) {
    const content = item.content;
    const named = withLabel ? [el("span", { class: "times" }, ...breakable(names[item.given] ?? "no label"))] : [];
    const times = item.times > 1 && content.kind !== "picture" ? [el("span", { class: "times", text: `${item.times.toLocaleString("en")} times: ${often(item.labels, names)}` })] : [];
    if (content.kind === "picture") return el("li", { title: item.id }, picture(item.row, "small", `Sample ${item.id}`), ...named);
    return el("li", { class: "near" }, ...(withLabel ? named : times), brief(content, NEAR_CELLS));
  }

  function neighbours({ groups, duplicates }, { names, kind, embedded }) {
    const list = (items) => el("ul", { class: kind === "pictures" ? "pictures" : "lines" }, ...items);
    const equal = duplicates.length ? [el("h3", { text: embedded ? "Identical or nearly identical" : "Identical" }), list(duplicates.map((near) => small(near, names, true)))] : [];
    const parts = groups.flatMap((group) => {
      const head = el("h3", {}, "Nearest selected samples with the label ", el("strong", {}, ...breakable(names[group.label])));
      if (!group.items.length) return [head, el("p", { class: "quiet", text: "No sample with this label is selected." })];
      return [head, list(group.items.map((near) => small(near, names)))];
    });
    $("neighbours").replaceChildren(...equal, ...parts);
  }

  // An equal sample with another label: one of the two labels is wrong.
  function same(item, { names, kind, embedded }) {
    const pairs = item.same, others = pairs.filter(([code]) => code !== item.given);
    $("same").hidden = !others.length;
    if (!others.length) return;
    const here = pairs.filter(([code]) => code === item.given);
    const what = { pictures: "The same picture", text: "The same text", table: "A row with the same features" }[kind] ?? "The same sample";
    $("same").textContent = `${what}${embedded ? ", or nearly the same," : ""} occurs elsewhere with another label: ${often(others, names)}`
      + (here.length ? `; and with this one: ${often(here, names)}.` : ".");
  }

  const outcome = (vote, names) => ({ keep: "Kept", drop: "Dropped", relabel: `Changed to ${names[vote.label] ?? "?"}` }[vote.decision] ?? "");

  function stamp(item, names) {
    const box = $("stamp");
    box.hidden = !item.decision;
    box.replaceChildren(...breakable(outcome(item, names)));
    const others = item.others ?? [];
    $("others").hidden = !others.length;
    $("others").textContent = (item.conflict ? "Reviewers disagree. " : "")
      + others.map((vote) => `${vote.reviewer || "Without a name"}: ${outcome(vote, names)}`).join("; ");
  }

  // A tile of the grid: a button that is pressed while its sample is selected.
  function tile(item, names, onclick) {
    const content = item.content;
    const inside = content.kind === "picture" ? picture(item.row, "small", `Sample ${item.id}`) : brief(content, TILE_CELLS);
    const labels = el("span", { class: "pair" }, el("span", { class: "was" }, ...breakable(names[item.given] ?? "unknown")), " → ",
      el("span", { class: "now" }, ...breakable(item.suggested >= 0 ? names[item.suggested] : "no other")));
    const votes = [...(item.decision ? [{ ...item, reviewer: null }] : []), ...(item.others ?? [])];
    const marks = votes.map((vote) => el("span", { class: "mark" }, ...breakable(`${vote.reviewer ? `${vote.reviewer}: ` : ""}${outcome(vote, names)}`)));
    const number = el("span", { class: "quiet", text: item.no_class ? "may fit no class" : item.suspicion === null ? "" : `suspicion ${suspicion(item.suspicion)}` });
    return el("button", { type: "button", class: `tile${item.conflict ? " conflict" : ""}`, "aria-pressed": "false", "data-row": String(item.row), title: item.id, onclick }, inside, labels, number, ...marks);
  }

  const nothing = ({ filter, notComputed }) => el("div", { class: "end" }, el("h2", { text: "Nothing here." }), el("p", { text: notComputed[filter.show] ?? "No sample passes this filter." }));

  function grid(items, state, onclick) {
    $("sample").replaceChildren(el("div", { class: "tiles", role: "group", "aria-label": "Samples" }, ...items.map((item) => tile(item, state.names, (event) => onclick(item, event)))));
    if (!items.length) $("sample").replaceChildren(nothing(state));
  }

  function selection(rows) {
    for (const node of document.querySelectorAll(".tile")) node.setAttribute("aria-pressed", String(rows.has(Number(node.dataset.row))));
    decisions(rows.size > 0, [`Keep ${rows.size}`], [`Take ${rows.size} suggestion${rows.size === 1 ? "" : "s"}`]);
  }

  // All buttons that decide change together. `keep` and `take`: text, and the full name as the title.
  function decisions(enabled, keep = ["Keep"], take = null) {
    for (const [id, [text, title = ""]] of [["do-keep", keep], ["do-suggested", take ?? ["No suggestion"]]]) {
      $(id).querySelector("span").textContent = text;
      $(id).title = title;
    }
    for (const id of ["do-keep", "do-choose", "do-drop"]) $(id).disabled = !enabled;
    $("do-suggested").disabled = !enabled || !take;
  }

  // A long name breaks after its separators: <wbr> allows it, and is not part of the text.
  const breakable = (name) => String(name).split(/(?<=[_\-/]|\.(?!\d))/).flatMap((part, i) => (i ? [document.createElement("wbr"), part] : [part]));

  function label(id, name, missing) {
    const box = $(id);
    box.replaceChildren(...breakable(name ?? missing));
    box.classList.toggle("none", name === undefined || name === null);
  }

  // Probabilities if the run estimated them, else the suspicion and the probability of the given label.
  function numbers(item, names, judged) {
    if (item.suspicion === null) return [`Suspicion unknown, ${item.verdict}`];
    const parts = judged
      ? [`${likely(item.suspicion)} likely wrong, ${item.verdict}`]
      : [`Suspicion ${suspicion(item.suspicion)}, ${item.verdict}`];
    if (item.likely !== null) parts.push(`${likely(item.likely)} likely ${names[item.suggested]}`);
    else if (item.probability !== null) parts.push(`The model gives the given label ${likely(item.probability)}`);
    if (item.no_class) parts.push("The sample may belong to none of the classes");
    if (item.outlier) parts.push("An outlier: far from all other samples");
    return parts;
  }

  function item(item, state) {
    const { names, judged } = state;
    $("sample").replaceChildren(large(item));
    label("given-label", names[item.given], "unknown");
    label("suggested-label", item.suggested >= 0 ? names[item.suggested] : null, "no other");
    $("numbers").replaceChildren(...numbers(item, names, judged).map((text) => el("span", {}, ...breakable(text))));
    $("sample-id").textContent = item.id;
    same(item, state);
    stamp(item, names);
    const [keep, take] = item.short;
    decisions(true, [`Keep ${keep}`, `Keep ${names[item.given] ?? ""}`], item.suggested >= 0 ? [`Take ${take}`, `Take ${names[item.suggested]}`] : null);
  }

  function end(state) {
    const box = state.total
      ? el("div", { class: "end" }, el("h2", { text: "All decided." }), el("p", { text: "Nothing is left in this queue. Take the corrected labels with" }),
        el("p", {}, el("code", { text: `labelsieve export ${state.name} --what cleaned --to cleaned.csv` })), el("p", { class: "quiet", text: "The arrows go back through what you decided." }))
      : nothing(state);
    $("sample").replaceChildren(box);
    $("neighbours").replaceChildren();
    for (const id of ["given-label", "suggested-label", "numbers", "sample-id"]) $(id).textContent = "";
    $("stamp").hidden = $("same").hidden = $("others").hidden = true;
    decisions(false);
  }

  function progress(state) {
    $("progress").max = Math.max(state.total, 1);
    $("progress").value = state.decided;
    const count = (n) => n.toLocaleString("en");
    const at = state.current === null ? "" : `${count(state.at + 1)} of ${count(state.total)} · `;
    const conflicts = state.conflicts ? ` · ${count(state.conflicts)} disagreement${state.conflicts > 1 ? "s" : ""}` : "";
    for (const id of ["do-back", "do-forward"]) $(id).disabled = !state.total;
    $("do-skip").disabled = !state.current && !state.tiles?.length;
    $("progress-text").textContent = `${at}${count(state.decided)} decided · ${count(state.left)} left${conflicts}`;
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
    const head = el("tr", {}, el("td", { class: "same" }), ...answer.classes.map((code, i) => el("th", { scope: "col", title: names[code] }, el("span", { text: answer.names[i] }))));
    const rows = answer.classes.map((given, i) => el("tr", {}, el("th", { scope: "row", title: names[given], text: answer.names[i] }),
      ...answer.classes.map((suggested) => {
        const cell = cells.get(`${given} ${suggested}`);
        if (given === suggested || !cell) return el("td", { class: given === suggested ? "same" : "" });
        const level = cell.left ? `h${Math.ceil(10 * cell.left / most)}` : "done";
        const description = `${names[given]}, suggested ${names[suggested]}: ${cell.count} suspects, ${cell.left} left`;
        return el("td", {}, el("button", { type: "button", class: level, title: description, "aria-label": description, text: String(cell.left || cell.count), onclick: () => open(given, suggested) }));
      })));
    $("matrix-table").replaceChildren(el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows)));
    if (!answer.cells.length) $("matrix-table").replaceChildren(el("p", { text: "There are no suspects." }));
    $("matrix-note").textContent = "Rows are given labels, columns are suggested labels. A number opens its samples; decided ones are struck through."
      + (answer.hidden > 0 && answer.classes.length ? ` The ${answer.classes.length} most confused classes are shown.` : "");
  }

  // The dialog for accepting many suggestions: what the model expects, and what the random samples say.
  function check(answer) {
    const count = (n) => Math.round(n).toLocaleString("en"), many = answer.acceptable, group = answer.groups.suggested;
    $("bulk-expected").textContent = `${count(many)} undecided suspect${many === 1 ? "" : "s"} would get the suggested label${many ? `, ${answer.expected} expected to be right` : ""}.`;
    const left = group.sample - group.checked, right = group.right_suggestions;
    $("bulk-checked").textContent = left > 0
      ? `Review a random sample of ${group.sample} first: ${left} left.`
      : `${right} of your ${group.checked} ${right === 1 ? "was" : "were"} right; the model expected ${(group.checked * (group.model_right ?? 0)).toFixed(1)}.`;
    if (!group.size) $("bulk-checked").textContent = "No suggestion is that probable.";
    $("check-suggested").hidden = left <= 0;
    $("bulk-accept").disabled = left > 0 || !many;
    $("bulk-accept").textContent = `Accept ${count(many)}`;
    const noise = answer.noise;
    $("bulk-noise").textContent = (answer.noise_ratio === null ? "" : `The model estimates ${percent(answer.noise_ratio)}. `)
      + (noise ? `By ${noise.decided} random decisions: ${percent(noise.ratio)} (95 % interval ${percent(noise.low)} to ${percent(noise.high)}).` : "Too few random samples have been reviewed for an estimate.")
      + (noise && noise.unchecked > 0 ? ` ${percent(noise.unchecked)} of the samples are in groups without a random sample; the model's estimate is used for them.` : "");
    for (const name of ["other", "rest"]) $(`check-${name}`).hidden = answer.groups[name].checked >= answer.groups[name].sample;
  }

  return { $, el, breakable, grid, selection, check, item, end, progress, saved, notice, banner, stamp, neighbours, matrix };
})();
