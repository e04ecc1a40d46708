// An agent in JavaScript that survives. Start it, kill it anywhere, start it again.
//
//   perdure serve &
//   export PERDURE_API_KEY=$(perdure keys create agent --json | node -pe 'JSON.parse(require("fs").readFileSync(0)).key')
//   node agent.mjs trip-42

import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { Done, NotDone, Perdure } from "./perdure.mjs";

const BOOKINGS = process.env.BOOKINGS ?? "bookings.txt"; // stands for the airline: it knows bookings by their key

const perdure = new Perdure({
  url: process.env.PERDURE_URL ?? "http://127.0.0.1:8321",
  key: process.env.PERDURE_API_KEY,
  agent: "travel",
});

function book({ flight, key }) {
  appendFileSync(BOOKINGS, `${key} ${flight}\n`);
  return `booked ${flight}`;
}

function isBooked({ flight, key }) {
  const known = existsSync(BOOKINGS) && readFileSync(BOOKINGS, "utf8").includes(`${key} `);
  return known ? new Done(`booked ${flight}`) : NotDone;
}

const result = await perdure.run(process.argv[2] ?? "trip-42", { input: { to: "NYC" }, wait: 60 }, async (run) => {
  const flights = await run.step("search", { city: run.input.to }, ({ city }, writes) => {
    writes.state = { city };
    return [`${city}-0900`, `${city}-1200`];
  });
  return run.effect("book", { flight: flights[0] }, book, { check: isBooked, timeout: 10 });
});
console.log(result);
