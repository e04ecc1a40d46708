"""Remote stores: what the server lets a key do, and answers that were lost."""

from __future__ import annotations

from tests.mutations.mutant import mutant

GUARD = "server/test_guard.py::"
REMOTE = "server/test_remote_store.py::"

MUTANTS = (
    mutant(
        "reader-writes",
        "a key that may only read writes over the network",
        GUARD + "test_a_reader_runs_no_write",
        "perdure.server.remote.guard:_check_role",
        ("not principal.role.includes(Role.WRITER)", "False"),
    ),
    mutant(
        "forged-view",
        "a view is changed over the network without an entry",
        GUARD + "test_a_view_changes_with_an_entry_only",
        "perdure.server.remote.guard:StatementGuard._check_batch",
        ("RULES.get(statement.name, _READ).use is Use.VIEW and principal.role is not Role.ADMIN", "False"),
    ),
    mutant(
        "forged-link",
        "an entry that does not fit its chain is appended over the network",
        GUARD + "test_an_entry_fits_its_chain",
        "perdure.server.remote.guard:StatementGuard._project_again",
        ("linked != link", "False"),
    ),
    mutant(
        "foreign-agent",
        "a key of one agent writes to another",
        GUARD + "test_a_bound_key_touches_its_own_agent",
        "perdure.server.remote.ownership:_may_name",
        ("agent == principal.agent", "True"),
    ),
    mutant(
        "audit-log-open",
        "a remote writer appends to the audit log",
        GUARD + "test_nobody_writes_to_the_audit_log",
        "perdure.server.remote.ownership:_may_name",
        ("return not agent.startswith(OURS)", "return True"),
    ),
    mutant(
        "foreign-chunks",
        "a key of one agent reads what another one remembers",
        GUARD + "test_a_bound_key_reads_its_own_rows",
        "perdure.server.remote.ownership:RowOwners._may_read_list",
        ("all(self._may_touch(principal, number, fresh=False) for number in numbers)", "True"),
    ),
    mutant(
        "foreign-holder",
        "a key releases the leases of another one",
        GUARD + "test_a_holder_belongs_to_its_key",
        "perdure.server.remote.holders:HolderKeys.check",
        ("self._find_key(holder) not in (None, principal.key_id)", "False"),
    ),
    mutant(
        "lost-answer-guessed",
        "a commit whose answer was lost is made again without looking it up",
        REMOTE + "test_an_answer_that_is_lost_after_the_commit_is_looked_up",
        "perdure.store.remote.commit:RemoteCommit._has_landed",
        ("rows == attempt.proof.rows", "False"),
    ),
    mutant(
        "secret-told",
        "a client reads the secret of the store",
        GUARD + "test_the_secret_is_not_told",
        "perdure.server.remote.guard:StatementGuard._check_content",
        ('"secret".startswith(args[0])', "False"),
    ),
)
