// Perdure for JavaScript: durable steps and effects through `perdure serve`, with nothing but fetch.
//
//   import { Perdure } from "./perdure.mjs";
//   const perdure = new Perdure({ url: "http://127.0.0.1:8321", key: process.env.PERDURE_API_KEY, agent: "travel" });
//   const result = await perdure.run("trip-42", { input: { to: "NYC" } }, async (run) => {
//     const flights = await run.step("search", { city: "NYC" }, ({ city }) => search(city));
//     return run.effect("book", { flight: flights[0] }, ({ flight, key }) => book(flight, key), { check: find });
//   });
//
// Kill the process anywhere and start it again with the same run id: recorded steps return their results, and an effect
// that may have happened is never repeated without a check, a policy or a person. Code outside of steps runs again.

/** Throw it in an effect, or return it from a check, when nothing happened. */
export class NotDone extends Error {}

/** Return it from a check: the effect happened, with this result. */
export class Done {
  constructor(result) {
    this.result = result;
  }
}

/** A refusal of the server. `code` is stable: PD301 busy, PD304 waiting, PD306 lease lost, PD307 diverged, ... */
export class PerdureError extends Error {
  constructor(problem) {
    super(problem.hint ? `${problem.detail} (${problem.hint})` : problem.detail);
    this.name = problem.title;
    this.code = problem.code;
    this.status = problem.status;
  }
}

/** A failure that the run has recorded. */
export class StepFailed extends Error {
  constructor({ type, message }, entry) {
    super(message);
    this.name = type;
    this.entry = entry;
  }
}

/** The run waits for a person, and the program does not: start it again later. */
export class RunWaiting extends Error {}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const sorted = (_, value) =>
  value && typeof value === "object" && !Array.isArray(value)
    ? Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)))
    : value;

export class Perdure {
  /** `patience`: for how many seconds requests are repeated while the server cannot be reached. */
  constructor({ url, key, agent, leaseMs = 30_000, patience = 20, fetch = globalThis.fetch }) {
    this.base = `${url.replace(/\/$/, "")}/v1/agents/${encodeURIComponent(agent)}`;
    this.headers = { "content-type": "application/json", ...(key && { authorization: `Bearer ${key}` }) };
    this.client = `js-${globalThis.crypto.randomUUID()}`; // one per process: it proves who holds a run
    Object.assign(this, { leaseMs, patience, fetch });
  }

  /** Send a request. A lost answer is asked for again with the same Idempotency-Key, which changes nothing. */
  async post(path, body) {
    const request = { method: "POST", headers: { ...this.headers, "idempotency-key": globalThis.crypto.randomUUID() } };
    request.body = JSON.stringify(body);
    const until = performance.now() + this.patience * 1000;
    for (let wait = 50; ; wait = Math.min(wait * 2, 2000)) {
      try {
        const answer = await this.fetch(this.base + path, request);
        const data = await answer.json();
        if (answer.ok) return data;
        const passing = answer.status === 429 || answer.status === 503 || data.code === "PD912";
        if (!passing || performance.now() > until) throw new PerdureError(data);
      } catch (error) {
        if (error instanceof PerdureError || performance.now() > until) throw error;
      }
      await pause(wait);
    }
  }

  /** Run a program under an id. `wait`: for how many seconds to wait while another process has the run open. */
  async run(id, { input = null, onChange = "error", wait = 0, waitForPeople = true } = {}, program) {
    const path = `/runs/${encodeURIComponent(id)}`;
    const run = new Run(this, path, waitForPeople);
    const until = performance.now() + wait * 1000;
    const request = { client: this.client, input, lease_ms: this.leaseMs, on_change: onChange, calls: 0 };
    while (!run.session) {
      try {
        run.opened(await this.post(`${path}:open`, request));
      } catch (error) {
        if (error.code !== "PD301" || performance.now() > until) throw error;
        await pause(200);
      }
    }
    let result;
    try {
      result = (await program(run)) ?? null;
    } catch (error) {
      await run.leave(error);
      throw error;
    }
    await run.close({ how: "finished", result });
    return result;
  }
}

class Run {
  constructor(perdure, path, waitForPeople) {
    Object.assign(this, { perdure, path, waitForPeople });
    this.session = "";
    this.state = {}; // as the program has seen it so far; written by steps and effects
    this.messages = [];
    this.counts = new Map();
    this.seen = new Set(); // entries whose writes were applied
    this.passed = []; // effects that this process has reached
  }

  opened(answer) {
    Object.assign(this, { session: answer.session, input: answer.input, resumed: answer.resumed });
    Object.assign(this, { finished: answer.finished, result: answer.result, ahead: answer.recorded });
    if (answer.fence) this.timer = setInterval(() => this.beat(), answer.heartbeat_ms);
    this.timer?.unref?.();
  }

  async beat() {
    if (this.beating) return; // the server cannot be reached, and the last heartbeat is still being repeated
    this.beating = true;
    const { order } = await this.send("heartbeat", {}).catch(() => ({}));
    this.beating = false;
    this.order = order || this.order;
  }

  send(verb, body) {
    return this.perdure.post(`${this.path}:${verb}`, { session: this.session, ...body });
  }

  /** The server matches calls by scope, name, arguments and this number; with an id, by that alone. */
  describe(name, args, { id, scope = [], retries = 0, backoff = 1 }) {
    const key = JSON.stringify([scope, name, args], sorted);
    const nth = id === undefined ? (this.counts.get(key) ?? 0) : 0;
    if (id === undefined) this.counts.set(key, nth + 1);
    return { name, arguments: args, nth, scope, retries, backoff, ...(id !== undefined && { id }) };
  }

  apply(answer, writes = answer.writes) {
    if (!writes || (answer.entry && this.seen.has(answer.entry))) return answer.result;
    this.seen.add(answer.entry);
    Object.assign(this.state, writes.state ?? {});
    for (const key of writes.deleted ?? []) delete this.state[key];
    this.messages.push(...(writes.messages ?? []));
    return answer.result;
  }

  /** Answers of the server that are no outcome yet. Returns whether to send the request again. */
  async again(answer) {
    if (answer.status === "failed") throw new StepFailed(answer.error, answer.entry);
    if (answer.status === "waiting" && !this.waitForPeople) throw new RunWaiting(answer.question);
    if (answer.status !== "later" && answer.status !== "waiting") return false;
    await pause(answer.after_ms);
    return true;
  }

  /** Execute `body(args, writes)` once. It may run again after a crash; `writes` land with its result. */
  async step(name, args, body, options = {}) {
    const call = this.describe(name, args, options);
    const look = this.ahead > 0 || this.finished || call.id !== undefined;
    let answer = look ? await this.send("step", call) : { status: "run", attempt: 1 };
    for (;;) {
      if (answer.status === "done") {
        this.ahead -= 1;
        return this.apply(answer);
      }
      if (await this.again(answer)) {
        answer = await this.send("step", call);
        continue;
      }
      const writes = {};
      const report = await outcomeOf(() => body(args, writes));
      answer = await this.send("step", { ...call, ...report, writes, attempt: answer.attempt });
      if (answer.status === "done") return this.apply(answer, writes);
      if (answer.status === "failed") throw Object.assign(report.cause, { entry: answer.entry });
    }
  }

  /**
   * Execute `body({...args, key}, writes)`, which acts on the world. `check({...args, key})` tells after a crash: Done,
   * NotDone, or anything else for unknown. `timeout` in seconds: without one, NotDone of a dead process is never believed.
   */
  async effect(name, args, body, { check, inDoubt = "ask", timeout, ...options } = {}) {
    const call = this.describe(name, args, options);
    const more = { timeout: timeout ?? null, check: Boolean(check), in_doubt: inDoubt };
    let checked = null;
    for (;;) {
      const sent = performance.now();
      const answer = await this.intend({ ...call, ...more, checked });
      if (answer.entry) this.passed.push(answer.entry);
      if (answer.status === "done") {
        this.ahead -= 1;
        return this.apply(answer);
      }
      checked = answer.status === "check" ? await ask(check, { ...args, key: answer.key }, answer.ticket) : null;
      if (checked || (await this.again(answer))) continue;
      // The lease may have run out while the answer was on its way. Then another process may have the run.
      if (performance.now() - sent > answer.lease_ms) await this.send("heartbeat", {});
      const writes = {};
      const report = await outcomeOf(() => within(timeout, body({ ...args, key: answer.key }, writes)));
      const told = { name, intent: answer.entry, ...report, writes, attempt: answer.attempt, check: Boolean(check) };
      const done = await this.outcome({ ...told, retries: call.retries, backoff: call.backoff }, check, args, answer.key);
      if (done.status === "done") return this.apply(done, report.error ? {} : writes);
      if (done.status === "failed") throw Object.assign(report.cause, { entry: done.entry });
      await this.again(done);
    }
  }

  async intend(call) {
    try {
      return await this.send("intend", call);
    } catch (error) {
      if (error.code !== "PD370") throw error; // the server was restarted, and asks what this process has reached
      return this.send("intend", { ...call, passed: this.passed });
    }
  }

  async outcome(told, check, args, key) {
    const answer = await this.send("outcome", told);
    if (answer.status !== "check") return answer;
    return this.send("outcome", { ...told, checked: await ask(check, { ...args, key }, answer.ticket) });
  }

  /** Ask a person. The text identifies the question; give equal questions an `id`. */
  async ask(question, { kind = "ask", choices = null, id } = {}) {
    for (;;) {
      const answer = await this.send("ask", { question, kind, choices, ...(id !== undefined && { id }) });
      if (answer.status === "done") return answer.result;
      await this.again(answer);
    }
  }

  approve(question, options = {}) {
    return this.ask(question, { ...options, kind: "approve" });
  }

  async leave(error) {
    if (error.code === "PD306") return clearInterval(this.timer); // somebody else has the run
    const stopped = this.order || error.code === "PD313" || error.code === "PD314";
    const how = stopped ? "stopped" : error instanceof RunWaiting ? "waiting" : "failed";
    await this.close({ how, error: describe(error), cause: error.entry ?? 0 }).catch(() => {});
  }

  async close(ending) {
    clearInterval(this.timer);
    await this.send("close", ending);
  }
}

const describe = (error) => ({ type: error?.name ?? "Error", message: String(error?.message ?? error) });

async function outcomeOf(body) {
  try {
    return { result: (await body()) ?? null };
  } catch (cause) {
    const report = { error: { ...describe(cause), not_done: cause instanceof NotDone } };
    return Object.defineProperty(report, "cause", { value: cause }); // for the caller, not for the server
  }
}

async function ask(check, args, ticket) {
  const answer = await Promise.resolve().then(() => check(args)).catch((error) => error);
  if (answer instanceof Done) return { verdict: "done", result: answer.result ?? null, ticket };
  return { verdict: answer === NotDone || answer instanceof NotDone ? "not_done" : "unknown", ticket };
}

function within(seconds, work) {
  if (seconds === undefined) return work;
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`the body took longer than ${seconds} s`)), seconds * 1000);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}
