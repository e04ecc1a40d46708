"""A plan with a status per step. Promise: a restart does the next incomplete step, and no completed one again."""

from perdure import Agent

agent = Agent("analyst")


class WorkflowRunner:
    def __init__(self):
        self.workflow = agent.workflows.create(
            name="market-report",
            steps=[
                {"step": 1, "action": "scrape", "status": "completed"},
                {"step": 2, "action": "clean", "status": "pending"},
                {"step": 3, "action": "analyze", "status": "pending"},
                {"step": 4, "action": "write", "status": "pending"},
                {"step": 5, "action": "send", "status": "pending"},
            ],
        )

    def execute(self, step):
        with open("executed.txt", "a") as log:
            log.write(f"{step['action']}\n")
        return f"{step['action']} ok"

    def run(self):
        step = self.workflow.next_incomplete_step()
        while step:
            print(f"Step {step['step']}: {step['action']} ({step['status']})")
            result = self.execute(step)
            self.workflow.complete(step["step"], result)
            step = self.workflow.next_incomplete_step()


runner = WorkflowRunner()
runner.run()
print(f"{runner.workflow.progress}% done, {runner.workflow.results[5]}")
