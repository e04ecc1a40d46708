// An agent whose world is a file. It kills itself where PERDURE_KILL says: `before:3`, `after:3` (a request), `in:book`
// (a body, before it acts) or `out:book` (after it has acted).

import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { Done, NotDone, Perdure } from "../../../examples/javascript/perdure.mjs";

const { PERDURE_KILL: kill, WORLD: world, TRACE: trace } = process.env;
const die = (moment) => moment === kill && process.kill(process.pid, "SIGKILL");
let requests = 0;

async function fetchOrDie(address, request) {
  const verb = address.split(":").pop();
  if (verb === "heartbeat") return fetch(address, request);
  const number = ++requests;
  die(`before:${number}`);
  const answer = await fetch(address, request);
  if (trace) appendFileSync(trace, `${verb}\n`);
  die(`after:${number}`);
  return answer;
}

function act(name) {
  return ({ key }) => {
    die(`in:${name}`);
    appendFileSync(world, `${name} ${key ?? ""}\n`);
    die(`out:${name}`);
    return `${name} done`;
  };
}

const check = (name) => ({ key }) =>
  existsSync(world) && readFileSync(world, "utf8").includes(`${name} ${key}\n`) ? new Done(`${name} done`) : NotDone;

const [, , url, key, id] = process.argv;
const perdure = new Perdure({ url, key, agent: "travel", leaseMs: 1000, patience: 60, fetch: fetchOrDie });
const result = await perdure.run(id, { input: { to: "NYC" }, wait: 60 }, async (run) => {
  const found = await run.step("search", { city: "NYC" }, (args, writes) => {
    writes.state = { city: "NYC" };
    writes.messages = [{ role: "user", content: "NYC" }];
    return act("search")(args);
  });
  const booked = await run.effect("book", { flight: found, leg: 1 }, act("book"), { check: check("book"), timeout: 0.5 });
  const paid = await run.effect("pay", { booked }, act("pay"), { check: check("pay"), timeout: 0.5 });
  await run.step("thank", {}, act("thank"));
  return { found, booked, paid, state: run.state, messages: run.messages.length };
});
console.log(JSON.stringify(result));
