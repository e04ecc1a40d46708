"""An event-sourced agent. Promise: its state is the replay of its log, so nothing that was logged is done again."""

from perdure import Agent

agent = Agent("trader")


class EventLogger:
    def log(self, event_type, **data):
        agent.events.append(event_type, data)

    def replay(self):
        state = {"cash": 1000, "shares": {}, "orders": 0}
        for event in agent.events.read():
            self.apply(state, event)
        return state

    def apply(self, state, event):
        if event.kind == "ORDER_FILLED":
            order = event.payload
            state["cash"] -= order["price"] * order["count"]
            state["shares"][order["symbol"]] = state["shares"].get(order["symbol"], 0) + order["count"]
            state["orders"] += 1


logger = EventLogger()
state = logger.replay()
print(f"Replayed {state['orders']} orders")

for number in range(state["orders"], 20):
    logger.log("ORDER_FILLED", symbol="ABC" if number % 2 else "XYZ", price=number, count=2)
    [event] = agent.events.read(last=1)
    logger.apply(state, event)

assert state == logger.replay()
print(f"cash {state['cash']}, {state['shares']}")
