"""Steps of those who send: uploads, new and repeated, and what is answered."""

from datetime import date

from dither_aggregator.store import Receipt, Store
from dither_aggregator.store.documents import GRACE
from dither_shared.wire.reading import Group, Problem, Upload, parse_upload
from tests.faults.aggregator.steps.processes import Processes, step
from tests.faults.aggregator.uploads import Sent


class UploadSteps(Processes):
    """Append uploads, and account for each answer."""

    @step
    def send(self, number: int) -> None:
        """Append some uploads: new, repeated, with another body under an id that came before, doubled."""
        self._append([self._pick() for _ in range(number)])

    def _pick(self) -> Sent:
        ids = self.oracle.ids()
        unsettled = self.oracle.unsettled()
        what = self.rng.randrange(12) if ids else 11
        if what == 0:
            id_ = self.rng.choice(ids)
            return self.oracle.sent(id_, self.oracle.another_body(id_))
        if what in (1, 5):
            return self.rng.choice(self.oracle.all_of(self.rng.choice(ids)))
        if what in (2, 3):
            return self.rng.choice(self.oracle.all_of(self.rng.choice(unsettled or ids[-3:])))
        if what == 4:
            return self.oracle.note(self.oracle.uploads.damaged())
        id_, _ = self.oracle.upload()
        return self.oracle.sent(id_)

    def send_again_what_is_unsettled(self) -> None:
        """Send the same bytes again of what nobody answered, as devices do."""
        for id_ in self.oracle.unsettled():
            self._append(self.oracle.all_of(id_))

    def _append(self, batch: list[Sent]) -> None:
        store = self.any()
        parsed = [(sent, self._parse(store, sent)) for sent in batch]
        taken = [(sent, upload) for sent, upload in parsed if upload]
        before = {status.shard: status.day for status in self.observer.status()}
        answers = self._try(lambda: store.append([(upload, sent.body) for sent, upload in taken]))
        after = {status.shard: status.day for status in self.observer.status()}
        for place, (sent, upload) in enumerate(taken):
            shard = store.shard_of(store.digest(sent.id.encode()))
            epoch = after[shard]
            days = {max(before[shard], clock) for clock in (store.clock_day(), self.today)}
            assert epoch in {before[shard], *days}, f"an upload counts on {epoch}, and it is {days}"
            if answers is None:
                refused = [refusal.group for refusal in upload.refused]
                self.oracle.unknown(sent.id, body=sent.body, refused=refused, epoch=epoch)
            else:
                self._answered(sent, answers[place], epoch, latest=max(epoch, *days))

    def _parse(self, store: Store, sent: Sent) -> Upload | None:
        """Read an upload as this process does; one that is damaged is put together. None where no plan is known."""
        if not sent.damaged:
            upload = parse_upload(sent.body, store.find_plan)
            self._check_reading(store, sent, upload)
            return upload
        plans = {(stored.plan.metric, stored.plan.digest): stored.plan for stored in store.plans()}
        if not all(group.plan in plans for group in sent.groups):
            return None
        return Upload(
            sent.id, tuple(Group(plans[group.plan], group.cell, group.packed, group.n) for group in sent.groups), ()
        )

    def _check_reading(self, store: Store, sent: Sent, upload: Upload) -> None:
        """Compare why groups are refused with what this process knows of the plans."""
        view, today = self._views[store._plans.version], store.clock_day()
        metrics = {metric for metric, _ in view}
        expected = {}
        for place, group in enumerate(sent.groups):
            known = view.get(group.plan)
            if known is None:
                expected[place] = "unknown-plan" if group.plan[0] in metrics else "unknown-metric"
            elif known.retired:
                expected[place] = "retired"
            elif today >= known.expires + GRACE:
                expected[place] = "expired"
            elif group.fault:
                expected[place] = group.fault
        refused = {refusal.group: refusal.reason for refusal in upload.refused}
        assert refused == expected, f"of {sent.id} {refused} were refused, and {expected} should be"

    def _answered(self, sent: Sent, answer: Receipt | Problem, epoch: date, latest: date) -> None:
        """Account for an answer. A copy or a refusal did not move the day, and was looked for on the latest."""
        if isinstance(answer, Receipt):
            self.met["copy" if answer.duplicate else "new"] += 1
            self.oracle.acknowledged(sent.id, answer, body=sent.body, epoch=latest if answer.duplicate else epoch)
        else:
            self.met[answer.slug] += 1
            self.oracle.refused(sent.id, answer, body=sent.body, epoch=latest)
