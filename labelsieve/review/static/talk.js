// Requests to the server. Every request has the token in a header; pictures have it in their address.
"use strict";

const Talk = (() => {
  const token = new URLSearchParams(location.search).get("token") || "";
  let own = null;
  try { own = sessionStorage.getItem("labelsieve-window"); } catch { /* private mode: a new name at every load */ }
  const window_ = own || Array.from(crypto.getRandomValues(new Uint8Array(9)), (b) => b.toString(36)).join("");
  try { sessionStorage.setItem("labelsieve-window", window_); } catch { /* as above */ }

  class Refused extends Error {
    constructor(path, status, answer) {
      super(answer.error || `the server answered ${status}`);
      Object.assign(this, { path, status, answer });
    }
  }

  async function ask(path, options = {}) {
    let response;
    try {
      response = await fetch(path, { ...options, headers: { "X-Labelsieve-Token": token, ...options.headers }, signal: options.signal ?? AbortSignal.timeout(20000) });
    } catch {
      throw new Refused(path, 0, { error: "the server does not answer. If labelsieve review was stopped, start it again and open the address that it prints" });
    }
    const answer = await response.json().catch(() => ({}));
    if (!response.ok) throw new Refused(path, response.status, answer);
    return answer;
  }

  let reviewer = "";
  try { reviewer = sessionStorage.getItem("labelsieve-reviewer") || ""; } catch { /* as above */ }

  return {
    window: window_,
    get reviewer() { return reviewer; },
    set reviewer(name) {
      reviewer = name;
      try { sessionStorage.setItem("labelsieve-reviewer", name); } catch { /* as above */ }
    },
    get: (path, query = {}, signal = null) => ask(`${path}?${new URLSearchParams({ ...query, reviewer })}`, { signal }),
    post: (path, body) => ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ window: window_, reviewer, ...body }) }),
    picture: (row, size) => `/api/picture/${row}?${new URLSearchParams({ size, token })}`,
  };
})();
