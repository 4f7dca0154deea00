// The review: position, keys and dialogs. Actions run one after the other, in the order of the keys.
"use strict";

(() => {
  const { $ } = Show;
  const AHEAD = 8, GRID = 48;
  const FILTERS = ["show", "given", "suggested", "low", "high", "sort"];
  const state = { names: [], kind: "", name: "", filter: {}, check: null, at: 0, total: 0, decided: 0, left: 0, current: null, tiles: null };
  const selected = new Set(); // rows that are selected in the grid
  let lastClicked = null; // item, for a range
  const known = new Map(); // position -> item, of the current filter
  let generation = 0; // of `known`: increased by another filter and by every saved decision
  const forget = () => { generation += 1; known.clear(); };

  // Increased before a request is sent: answers to earlier requests do not include it.
  function save(path, body = {}) {
    generation += 1;
    Show.saved("Saving …");
    return Talk.post(path, { ...body, filter: state.filter });
  }

  let last = Promise.resolve();
  const inTurn = (work) => { last = last.then(work).catch(trouble); return last; };

  function trouble(error) {
    if (error.status === 409 && error.answer.version !== undefined) return conflict(error.answer, error.path);
    Show.saved("Not saved", true);
    Show.notice(`${error.message[0].toUpperCase()}${error.message.slice(1)}. Earlier decisions are saved.`);
  }

  function conflict(answer, path) {
    for (const item of [...known.values(), ...(state.tiles ?? [])]) if (item.row === answer.row) update(item, answer);
    const change = { keep: "kept it", drop: "dropped it", relabel: `changed it to ${state.names[answer.label] ?? "?"}` }[answer.decision] ?? "took its decision back";
    if (state.current && state.current.row === answer.row) Show.stamp(state.current, state.names);
    Show.saved("Not saved", true);
    const way = path === "/api/decide" ? "Your decision was not saved; press the key again to replace the other one." : "It was not changed."; // another undo concerns another decision
    Show.notice(`Another window ${change} in the meantime. ${way}`);
  }

  const update = (item, { decision, label, version, others, conflict }) => Object.assign(item, { decision, label, version, others, conflict });

  // The position is in the address, so that a refresh comes back to it.
  function remember() {
    const place = new URLSearchParams({ ...state.filter, at: state.at, ...(state.tiles ? { grid: 1 } : {}) });
    try { history.replaceState(null, "", `${location.pathname}${location.search}#${place}`); } catch { /* Safari, when keys come fast: the next one will do */ }
  }

  function recall() {
    const place = new URLSearchParams(location.hash.slice(1));
    for (const name of FILTERS) if (place.has(name)) $(name).value = place.get(name);
    if (place.has("check")) state.check = { check: place.get("check"), confidence: place.get("confidence") };
    if (place.has("grid")) state.tiles = [];
    readFilter();
    return Number.parseInt(place.get("at") ?? "", 10);
  }

  function readFilter() {
    if (state.check) { state.filter = state.check; return; }
    const filter = { show: $("show").value || "suspects" };
    if ($("sort").value === "pair") filter.sort = "pair";
    for (const name of ["given", "suggested"]) if ($(name).value !== "") filter[name] = $(name).value;
    const low = Number.parseFloat($("low").value), high = Number.parseFloat($("high").value);
    if (low > 0) filter.low = String(Math.min(low, 1));
    if (high < 1) filter.high = String(Math.max(high, 0));
    state.filter = filter;
  }

  const counts = (answer) => { for (const name of ["total", "decided", "left", "conflicts"]) if (answer[name] !== undefined) state[name] = answer[name]; };

  async function fetchFrom(at, count = AHEAD) {
    const asked = generation;
    const answer = await Talk.get("/api/items", { ...state.filter, at, count });
    if (asked !== generation) return answer; // for another filter, or from before the last decision
    counts(answer);
    // The item on the page stays the same object: a decision sends its version and marks it.
    for (const item of answer.items) if (known.get(item.at) !== state.current) known.set(item.at, item);
    return answer;
  }

  const within = (at) => Math.min(Math.max(at, 0), Math.max(state.total - 1, 0));

  // The page of the grid that has this position. The position stays that of the sample.
  async function openTiles(at) {
    helps.abort();
    selected.clear();
    state.current = null;
    const answer = await fetchFrom(Math.floor(at / GRID) * GRID, GRID);
    counts(answer);
    state.at = within(at);
    state.tiles = answer.items;
    Show.notice("");
    drawTiles();
    Show.progress(state);
    remember();
  }

  function drawTiles() {
    Show.grid(state.tiles, state, (item, event) => {
      const range = event.shiftKey && lastClicked ? state.tiles.slice(...[state.tiles.indexOf(lastClicked), state.tiles.indexOf(item)].sort((a, b) => a - b).map((place, i) => place + i)) : [item];
      const on = !selected.has(item.row);
      for (const one of range) if (on) selected.add(one.row); else selected.delete(one.row);
      lastClicked = item;
      Show.selection(selected);
    });
    Show.selection(selected);
  }

  const toggleGrid = () => inTurn(async () => {
    const grid = !state.tiles, chosen = state.tiles?.find((item) => selected.has(item.row))?.at;
    state.tiles = grid ? [] : null;
    document.body.classList.toggle("grid", grid);
    $("open-grid").setAttribute("aria-pressed", String(grid));
    await go(chosen ?? within(state.at), true);
  });

  function selectOpen() {
    if (!state.tiles) return;
    const open = state.tiles.filter((item) => !item.decision).map((item) => item.row);
    const all = open.every((row) => selected.has(row));
    selected.clear();
    if (!all) for (const row of open) selected.add(row);
    Show.selection(selected);
  }

  async function go(at, fresh = false) {
    if (state.tiles) return openTiles(at);
    if (fresh || !known.has(at)) {
      const answer = await fetchFrom(at);
      at = answer.at;
    }
    const item = known.get(at) ?? null;
    state.at = at;
    state.current = item;
    Show.notice("");
    helps.abort();
    helps = new AbortController();
    if (item) {
      Show.item(item, state);
      beside(item);
      lookAhead(at);
    } else {
      Show.end(state);
    }
    Show.progress(state);
    remember();
    if (!document.activeElement || document.activeElement === document.body) $("sample").focus({ preventScroll: true });
  }

  // A browser has six connections to a server: requests for earlier samples must not delay a key.
  let helps = new AbortController();
  const ask = (path) => Talk.get(path, {}, helps.signal);

  function beside(item) {
    $("neighbours").replaceChildren();
    ask(`/api/neighbours/${item.row}`).then((answer) => {
      if (state.current && state.current.row === answer.row) Show.neighbours(answer, state);
    }).catch(() => { /* only a help: its absence says enough */ });
  }

  function lookAhead(at) {
    if (!known.has(at + 3) && at + 3 < state.total) fetchFrom(at + 1).then(() => warm(at)).catch(() => {});
    else warm(at);
    for (const position of known.keys()) if (Math.abs(position - at) > 200) known.delete(position);
  }

  function warm(at) {
    if (state.kind !== "pictures") return;
    for (const next of [at + 1, at + 2]) {
      const item = known.get(next);
      if (item) new Image().src = Talk.picture(item.row, "large");
    }
  }

  async function toNextOpen(from) {
    if (!state.tiles) for (let at = from; known.has(at); at += 1) if (!known.get(at).decision || (state.check && known.get(at).unseen)) return go(at);
    let { at } = await Talk.get("/api/next", { ...state.filter, from, step: 1 });
    if (at === null) ({ at } = await Talk.get("/api/next", { ...state.filter, from: 0, step: 1 }));
    if (at !== null) return go(at);
    if (state.check || state.tiles) {
      await go(state.at);
      return state.check ? openBulk() : undefined;
    }
    state.current = null;
    await fetchFrom(0, 1); // the counts, if the filter is new
    Show.end(state);
    Show.notice("");
    Show.progress(state);
    state.at = Math.max(state.total, 0);
    remember();
  }

  const decide = (decision, label) => inTurn(async () => {
    const chosen = state.tiles ? state.tiles.filter((item) => selected.has(item.row)) : [state.current];
    const items = chosen.filter((item) => item && (decision !== "suggested" || item.suggested >= 0));
    if (!items.length) return;
    const answer = await save("/api/decide", { samples: items.map(({ row, version }) => ({ row, version })), decision, label });
    items.forEach((item, i) => update(item, answer.rows[i]));
    counts(answer);
    Show.saved(items.length > 1 ? `Saved ✓ ${items.length}` : "Saved ✓");
    const disagree = items.filter((item) => item.conflict).length;
    if (!state.tiles) await toNextOpen(items[0].at + 1);
    else {
      for (const item of items) known.delete(item.at);
      selected.clear();
      if (state.tiles.every((item) => item.decision || item.others.length)) await toNextOpen(state.tiles[0].at + state.tiles.length);
      else drawTiles();
      Show.progress(state);
    }
    if (disagree) Show.saved(`Saved ✓ ${disagree} disagree${disagree > 1 ? "" : "s"} with another reviewer`, true);
  });

  const turn = (path, verb) => inTurn(async () => {
    const answer = await save(path);
    counts(answer);
    if (!answer.changed) {
      Show.saved(`Nothing to ${verb}`);
      return;
    }
    forget();
    const { at } = await Talk.get("/api/where", { ...state.filter, row: answer.rows[0].row });
    await go(at ?? within(state.at), true);
    Show.saved(answer.changed > 1 ? `Saved ✓ ${answer.changed.toLocaleString("en")} ${verb === "undo" ? "undone" : "redone"}` : `Saved ✓ ${verb === "undo" ? "undone" : "redone"}`);
  });

  async function turnPage(step) {
    const at = (state.tiles[0]?.at ?? 0) + step * GRID;
    if (at === within(at)) await go(at);
  }

  const move = (step) => inTurn(async () => { if (state.tiles) await turnPage(step); else if (state.total) await go(within(state.at + step)); });

  const skip = () => inTurn(async () => { if (state.tiles) await turnPage(1); else if (state.current) await toNextOpen(state.at + 1); });

  const applyFilter = (check = null) => inTurn(async () => {
    state.check = check;
    readFilter();
    forget();
    const { at } = await Talk.get("/api/next", { ...state.filter, from: 0, step: 1 });
    await go(at ?? 0, true);
  });

  // Dialogs

  let matches = [], active = 0;

  function listClasses() {
    const wanted = $("choose-text").value.trim().toLowerCase();
    const found = [];
    state.names.forEach((name, code) => {
      const at = String(name).toLowerCase().indexOf(wanted);
      if (at >= 0) found.push([at === 0 ? 0 : 1, code]);
    });
    found.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    matches = found.slice(0, 60).map(([, code]) => code);
    active = 0;
    $("choose-list").replaceChildren(...matches.map((code, i) =>
      Show.el("li", { role: "option", id: `class-${i}`, "aria-selected": String(i === 0), onclick: () => choose(i) }, ...Show.breakable(state.names[code]))));
    $("choose-more").textContent = found.length > matches.length ? `and ${(found.length - matches.length).toLocaleString("en")} more: type to narrow` : found.length ? "" : "no class is called that";
    mark();
  }

  function mark() {
    [...$("choose-list").children].forEach((node, i) => node.setAttribute("aria-selected", String(i === active)));
    const node = $("choose-list").children[active];
    if (node) { node.scrollIntoView({ block: "nearest" }); $("choose-text").setAttribute("aria-activedescendant", node.id); }
    else $("choose-text").removeAttribute("aria-activedescendant");
  }

  function choose(i) {
    if (matches[i] === undefined) return;
    $("choose").close();
    decide("relabel", matches[i]);
  }

  const openChoose = () => { if (!state.current && !selected.size) return; $("choose-text").value = ""; listClasses(); $("choose").showModal(); $("choose-text").focus(); };

  const openMatrix = () => inTurn(async () => {
    Show.matrix(await Talk.get("/api/matrix"), state.names, (given, suggested) => {
      $("matrix").close();
      $("show").value = "suspects"; $("given").value = String(given); $("suggested").value = String(suggested); $("low").value = "0"; $("high").value = "1";
      applyFilter();
    });
    $("matrix").showModal();
  });

  async function openBulk() {
    if (!state.bulk) return;
    if (!$("confidence").value) $("confidence").value = String(state.confidence);
    await refreshBulk();
    if (!$("bulk").open) $("bulk").showModal();
  }

  const confidence = () => Math.min(Math.max(Number.parseFloat($("confidence").value) || 0, 0), 1);
  const refreshBulk = async () => Show.check(await Talk.get("/api/check", { confidence: confidence() }));

  const acceptAbove = () => inTurn(async () => {
    $("bulk").close();
    const answer = await save("/api/accept", { confidence: confidence() });
    forget();
    state.check = null;
    readFilter();
    await toNextOpen(0);
    Show.saved(`Saved ✓ ${answer.accepted.toLocaleString("en")} accepted`);
  });

  function judge(group) {
    $("bulk").close();
    applyFilter({ check: group, confidence: String(confidence()) });
  }

  const keys = {
    k: () => decide("keep"), s: () => decide("suggested"), c: openChoose, d: () => decide("drop"), " ": skip,
    u: () => turn("/api/undo", "undo"), r: () => turn("/api/redo", "redo"), ArrowLeft: () => move(-1), ArrowRight: () => move(1),
    m: openMatrix, a: () => inTurn(openBulk), g: toggleGrid, e: selectOpen, x: () => document.activeElement?.closest(".tile")?.click(), "?": () => $("help").showModal(), f: () => $("show").focus(),
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || document.querySelector("dialog[open]")) return;
    const at = event.target;
    if (at.closest("input, select, textarea")) {
      if (event.key === "Escape") at.blur();
      return;
    }
    if (event.key === " " && at.closest("button")) return; // the key presses the button
    const work = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!work || (event.repeat && !event.key.startsWith("Arrow"))) return;
    event.preventDefault();
    work();
  });

  const buttons = {
    "do-keep": keys.k, "do-suggested": keys.s, "do-choose": openChoose, "do-drop": keys.d, "do-skip": skip, "do-undo": keys.u, "do-redo": keys.r,
    "do-back": keys.ArrowLeft, "do-forward": keys.ArrowRight, "open-matrix": openMatrix, "open-bulk": keys.a, "open-grid": toggleGrid, "open-help": keys["?"],
  };
  for (const [id, work] of Object.entries(buttons)) {
    $(id).addEventListener("click", (event) => { if (event.detail > 0) event.currentTarget.blur(); work(); });
  }
  for (const name of FILTERS) $(name).addEventListener("change", () => applyFilter());
  $("filters").addEventListener("submit", (event) => { event.preventDefault(); applyFilter(); });
  $("clear").addEventListener("click", () => { $("show").value = "suspects"; $("given").value = ""; $("suggested").value = ""; $("low").value = "0"; $("high").value = "1"; $("sort").value = "suspicion"; applyFilter(); });
  $("choose-text").addEventListener("input", listClasses);
  $("choose-text").addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) { event.preventDefault(); active = Math.min(Math.max(active + step, 0), matches.length - 1); mark(); }
    else if (event.key === "Enter") { event.preventDefault(); choose(active); }
  });
  $("confidence").addEventListener("change", () => inTurn(refreshBulk));
  $("bulk-accept").addEventListener("click", acceptAbove);
  for (const group of ["suggested", "other", "rest"]) $(`check-${group}`).addEventListener("click", () => judge(group));
  $("reviewer").addEventListener("change", () => { Talk.reviewer = $("reviewer").value.trim(); applyFilter(state.check); });

  inTurn(async () => {
    const start = await Talk.get("/api/start");
    Object.assign(state, { names: start.classes, kind: start.kind, name: start.command, judged: start.judged, embedded: start.embedded, notComputed: start.not_computed, bulk: start.bulk, confidence: start.confidence });
    if (!Talk.reviewer) Talk.reviewer = start.reviewer;
    $("reviewer").value = Talk.reviewer;
    Show.banner(start.warnings);
    $("open-bulk").hidden = $("help-bulk").hidden = !start.bulk;
    $("run-name").textContent = start.name === start.folder ? start.name : `${start.name}, run ${start.folder}`;
    document.title = `${start.name} – review – labelsieve`;
    for (const id of ["given", "suggested"]) $(id).append(...start.classes.map((name, code) => Show.el("option", { value: String(code), text: name })));
    const at = recall();
    document.body.classList.toggle("grid", state.tiles !== null);
    $("open-grid").setAttribute("aria-pressed", String(state.tiles !== null));
    if (Number.isInteger(at) && at >= 0) await go(at, true);
    else await toNextOpen(0);
    document.body.dataset.ready = "yes";
  });
})();
