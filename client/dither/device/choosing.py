"""The person's choices, kept on the device."""

from dither.device.connected import DURABLE_WAIT_S, WAIT_S
from dither.device.parts import Parts
from dither.device.refusals import EVERYTHING
from dither.device.schema import DeviceDamaged, DeviceFault, DeviceUnusable, OtherVersion
from dither.device.withdrawal import drop, forget


class Choosing(Parts):
    """The part of `Device` that does what the person chose."""

    def choice(self) -> bool | None:
        """Return what the person chose for the whole app, in whichever process, or None if they did not choose."""
        self._refusals.look()
        if EVERYTHING in self._refusals.pending:
            return False
        with self._file.peek():
            return self._agreement.choice()

    def agree(self, *, chosen: bool = False) -> None:
        """Keep the registry's terms as agreed to, and, where the person said so here, that they chose it."""
        refused_before = self._unwritten(EVERYTHING)
        with self._file.transaction(durable=True):
            if refused_before:
                drop(self._file, "refused")
            self._agreement.agree()
            if chosen:
                self._agreement.choose(True)
        self._refusals.clear(EVERYTHING)

    def agree_once(self) -> None:
        """Keep the registry's terms as agreed to, unless any ever were."""
        with self._file.peek():
            agreed = self._agreement.agreed()
        if not agreed:
            self.agree()

    def refuse(self) -> None:
        """Keep that the person refuses, and drop what waits. Charges stay, and so does all that the device knows.

        If the file cannot be written, the choice is kept beside it. Raises where that cannot be either: then it holds
        in this process alone.
        """
        self._refuse(EVERYTHING)

    def refuse_metric(self, metric: str, refused: bool) -> None:
        """Keep that the person refuses one metric, and drop what of it waits; or that they no longer do."""
        if refused:
            self._refuse(metric)
            return
        refused_before = self._unwritten(metric)
        with self._file.transaction(durable=True):
            if refused_before:
                drop(self._file, "refused", metric)
            self._agreement.refuse(metric, refused)
        self._refusals.clear(metric)

    def _unwritten(self, metric: str) -> bool:
        """Tell whether a refusal is still to be written: what waited then must not leave, whatever is chosen since."""
        self._refusals.look()
        return metric in self._refusals.pending

    def _refuse(self, metric: str) -> None:
        try:
            self.open()
            self._write_refusals({metric}, DURABLE_WAIT_S)
        except Exception as error:
            # The mark waits for the disk, for the dither of the file's version, or for a new file in place of a damaged
            # one. Beside the file of another app it would be read as that app's.
            waits = isinstance(error, DeviceDamaged | DeviceFault | OtherVersion) or not isinstance(
                error, DeviceUnusable
            )
            if not (waits and self._refusals.note(metric)):
                raise

    def keep_refusals(self) -> None:
        """Write the refusals that could not be written before, ours and other processes'."""
        self._refusals.look()
        if self._refusals.pending:
            self._write_refusals(set(self._refusals.pending), WAIT_S)

    def _keep_refusals_but(self, metric: str) -> bool:
        """Write the refusals; return False where that cannot be, and a metric is refused by one of them."""
        try:
            self.keep_refusals()
        except Exception:
            if not self._refusals.of(metric):
                raise
            return False
        return True

    def _write_refusals(self, metrics: set[str], wait_s: float) -> None:
        with self._file.transaction(durable=True, wait_s=wait_s):  # the disk has it before the mark beside it goes
            for metric in metrics:
                if metric == EVERYTHING:
                    self._agreement.choose(False)
                    drop(self._file, "refused")
                else:
                    self._agreement.refuse(metric, refused=True)
                    drop(self._file, "refused", metric)
        self._refusals.clear(*metrics)

    def drop(self) -> None:
        """Drop what waits: the app says that the person does not agree."""
        with self._file.transaction(durable=True):
            drop(self._file, "refused")

    def refused(self) -> list[str]:
        """Return the metrics that the person refuses."""
        with self._file.peek():
            return sorted({*self._agreement.refused(), *self._refusals.pending} - {EVERYTHING})

    def asks(self) -> dict[str, list[str]]:
        """Return what the registry asks beyond what was agreed to, by metric, and by "" for the whole device."""
        with self._file.peek():
            return self._agreement.asks()

    def forget(self) -> bool:
        """Erase the secret, memos, cohort, and what waits; keep what was spent; say nothing for 30 days.

        Return False while another process still reads what was: `look` goes on with it.
        """
        return forget(self._file)
