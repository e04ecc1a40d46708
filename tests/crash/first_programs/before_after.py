"""Checkpoints before and after each action, and a look at the other side. Promise: no booking is made twice."""

import os

from perdure import Agent

agent = Agent("booker")
TRIP = ["flight", "hotel", "car", "dinner", "museum"]


class BookingService:
    def book(self, reference, what):
        with open("bookings.txt", "a") as log:
            log.write(f"{reference} {what}\n")

    def exists(self, reference):
        return os.path.exists("bookings.txt") and f"{reference} " in open("bookings.txt").read()


class SafeExecutor:
    def __init__(self, service):
        self.service = service
        self.saved = {checkpoint.name for checkpoint in agent.checkpoint.list()}

    def execute(self, number, what):
        before, after, reference = f"{number}-before", f"{number}-after", f"trip-{number}"
        if after in self.saved:
            return "done before"
        if before in self.saved and self.service.exists(reference):  # it crashed in between: look before you book
            agent.checkpoint.create(after, {"what": what, "status": "recovered"})
            return "recovered"
        agent.checkpoint.create(before, {"what": what, "status": "about to book"})
        self.service.book(reference, what)
        agent.checkpoint.create(after, {"what": what, "status": "booked"})
        return "booked"


executor = SafeExecutor(BookingService())
for number, what in enumerate(TRIP, start=1):
    print(f"{what}: {executor.execute(number, what)}")
