"""A directory that is kept is nobody else's to change: every mode, owner and kind of link, and what is left of each."""

import os
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from stat import S_IMODE
from typing import NamedTuple

import pytest

from dither_shared import files as file_permissions
from dither_shared.files import NotOurs, keep, make_file
from tests.support.owners import ME, SOMEBODY, Owners

NAME = "kept"
KINDS = ("none", "file", "link", "two names", "pipe", "directory")
DIRECTORY_MODES = (0o700, 0o755, 0o775, 0o777, 0o1777, 0o2775)
FILE_MODES = (0o600, 0o640, 0o644, 0o660, 0o666)


class Case(NamedTuple):
    user: int
    directory_owner: int
    directory_mode: int
    kind: str
    owner: int
    mode: int

    def make(self, directory: Path) -> None:
        directory.mkdir()
        path, other = directory / NAME, directory.with_suffix(".other")
        if self.kind in ("file", "two names"):
            path.touch()
            path.chmod(self.mode)
        if self.kind == "two names":
            other.hardlink_to(path)
        if self.kind == "link":
            other.touch()
            path.symlink_to(other)
        if self.kind == "pipe":
            os.mkfifo(path)
        if self.kind == "directory":
            path.mkdir()
        directory.chmod(self.directory_mode)

    def changed_by_others(self, directory: int, file: int | None) -> bool:
        """Tell whether others may change the file, by the modes that are left: who stands in no line here may not.

        Beside the user stand root, the group that an owner who is not the user let in and, for root, the owner of the
        directory.
        """
        directory_mine, mine = self.directory_owner == self.user, self.owner == self.user
        trusted = {self.user, 0} | ({self.directory_owner} if self.user == 0 else set())
        if self.directory_owner not in trusted or directory & (0o022 if directory_mine else 0o002):
            return True
        if self.kind == "none" or file is None:
            return False
        closed = mine and self.directory_owner in (self.user, 0)
        return self.kind != "file" or self.owner not in trusted or bool(file & (0o077 if closed else 0o002))

    def can_be_mended(self) -> bool:
        """Tell whether the user may take from others what they may do, and nothing else is wrong."""
        directory_mine = self.directory_owner == self.user
        if directory_mine and self.directory_mode & 0o1000:
            return False  # a place that is shared on purpose
        closed = self.owner == self.user and self.directory_owner in (self.user, 0)
        mended = self.directory_mode & (~0o022 if directory_mine else ~0)
        return not self.changed_by_others(mended, 0o600 if closed else self.mode)


def cases() -> Iterator[Case]:
    """Every mode and owner of a directory, and of a file in it; other kinds beside few of these."""
    for user in (ME, 0):
        owners = (user, 0, SOMEBODY)
        for directory_owner, directory_mode in product(owners, DIRECTORY_MODES):
            for kind in KINDS:
                for owner, mode in product(owners, FILE_MODES) if kind == "file" else [(user, 0o600)]:
                    yield Case(user, directory_owner, directory_mode, kind, owner, mode)


def kept(directory: Path) -> tuple[list[str], str]:
    """Return what was said, and why it was refused."""
    try:
        return keep(directory, (NAME,)), ""
    except NotOurs as error:
        return [], str(error)


def test_what_is_kept_others_may_not_change_and_what_can_be_mended_is_kept(tmp_path: Path) -> None:
    seen = 0
    for number, case in enumerate(dict.fromkeys(cases())):
        directory = tmp_path / str(number)
        case.make(directory)
        with pytest.MonkeyPatch.context() as patched:
            owners = Owners(patched, case.user)
            owners.give(directory, case.directory_owner)
            owners.give(directory / NAME, case.owner)
            said, refused = kept(directory)
        assert case.can_be_mended() == (not refused), (case, refused)
        if refused:
            assert str(directory) in refused, case
            continue
        left = [S_IMODE(path.lstat().st_mode) for path in (directory, directory / NAME) if os.path.lexists(path)]
        assert not case.changed_by_others(left[0], left[1] if len(left) > 1 else None), case
        before = [case.directory_mode, case.mode]
        assert [f"{mode:o}" in " ".join(said) for mode, now in zip(before, left, strict=False) if mode != now] == [
            True
        ] * len(said), case
        seen += 1
    assert seen > 100


def test_a_directory_is_made_for_the_user_alone_and_so_are_those_above_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        assert keep(tmp_path / "a" / "b" / "c", ()) == []
        make_file(tmp_path / "a" / "b" / "c" / NAME)
    finally:
        os.umask(before)
    for made in ("a", "a/b", "a/b/c"):
        assert S_IMODE((tmp_path / made).stat().st_mode) == 0o700
    assert S_IMODE((tmp_path / "a" / "b" / "c" / NAME).stat().st_mode) == 0o600


def test_a_place_where_nothing_can_be_made_is_said() -> None:
    with pytest.raises(FileNotFoundError):
        keep(Path("/proc/none/such"), ())


def test_a_file_that_goes_away_meanwhile_is_no_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As SQLite's log does when another process closes it."""
    (tmp_path / NAME).touch()
    (tmp_path / NAME).chmod(0o666)
    monkeypatch.setattr(os, "chmod", lambda path, mode: os.unlink(path))  # noqa: PTH108
    assert keep(tmp_path, (NAME, "other")) == []


@pytest.mark.parametrize(("owner", "followed"), [(ME, True), (0, True), (SOMEBODY, False)])
@pytest.mark.parametrize("place", ["", "deeper"])
def test_a_link_on_the_way_is_followed_if_the_user_or_root_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int, followed: bool, place: str
) -> None:
    (tmp_path / "there" / "deeper").mkdir(parents=True, mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "there")
    owners = Owners(monkeypatch)
    owners.give(tmp_path / "link", owner)
    owners.give(tmp_path / "there" / place, ME)
    if followed:
        assert keep(tmp_path / "link" / place, ()) == []
    else:
        with pytest.raises(NotOurs, match="is a link of user 4711: name the directory itself"):
            keep(tmp_path / "link" / place, ())


@pytest.mark.parametrize("to", ["other", "there/../other", "{}/other"])
def test_a_link_that_is_reached_through_a_link_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    (tmp_path / "there").mkdir(mode=0o700)
    (tmp_path / "other").symlink_to("there")
    (tmp_path / "link").symlink_to(to.format(tmp_path))
    owners = Owners(monkeypatch)
    assert keep(tmp_path / "link", ()) == []
    owners.give(tmp_path / "other", SOMEBODY)
    with pytest.raises(NotOurs, match=f"^{tmp_path}/other is a link of user 4711: name the directory itself"):
        keep(tmp_path / "link" / "deeper", ())


def test_the_directory_behind_a_link_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path / "there")
    (said,) = keep(tmp_path / "link", ())
    assert said.endswith("was open to others (mode 777): it has mode 755 now")
    assert S_IMODE((tmp_path / "there").stat().st_mode) == 0o755


def test_a_directory_above_that_all_may_write_in_is_said(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    for mode, said in ((0o777, True), (0o1777, False), (0o775, False)):
        (tmp_path / "shared").chmod(mode)
        found = keep(tmp_path / "shared" / "own", ())
        assert (
            found
            == [
                f"all may write in {tmp_path / 'shared'} (mode 777), and so may take {tmp_path / 'shared' / 'own'} away"
            ]
            * said
        )


@pytest.mark.parametrize(
    ("user", "owner", "group", "mode", "said"),
    [
        (ME, SOMEBODY, 0, 0o755, "{} (mode 755) belongs to user 4711, who may write in it"),
        (ME, SOMEBODY, 0, 0o1755, "{} (mode 1755) belongs to user 4711, who may write in it"),
        (ME, ME, SOMEBODY, 0o775, "group 4711 may write in {} (mode 775)"),
        (ME, 0, SOMEBODY, 0o2775, "group 4711 may write in {} (mode 2775)"),
        (ME, 0, ME, 0o775, "group 1000 may write in {} (mode 775)"),  # root's: others may be in the group
        (ME, ME, SOMEBODY, 0o1775, ""),
        (ME, ME, SOMEBODY, 0o755, ""),
        (ME, ME, ME, 0o775, ""),  # the user's own group
        (ME, ME, 0, 0o775, ""),
        (ME, 0, 0, 0o755, ""),
        (0, SOMEBODY, 0, 0o755, "{} (mode 755) belongs to user 4711, who may write in it"),
        (0, ME, 0, 0o755, ""),  # of the owner of the directory, whom root believes
    ],
)
def test_others_who_may_change_a_directory_above_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int, owner: int, group: int, mode: int, said: str
) -> None:
    above, directory = tmp_path / "above", tmp_path / "above" / "between" / "own"
    directory.mkdir(parents=True, mode=0o700)
    above.chmod(mode)
    owners = Owners(monkeypatch, user)
    owners.give(above, owner, group)
    owners.give(directory, ME)
    expected = [f"{said.format(above)}, and so may take {directory} away"] * bool(said)
    assert keep(directory, ()) == expected
    assert keep(directory, (), mend=False) == expected


def _fails(*_: object) -> None:
    raise PermissionError(1, "Operation not permitted")


@pytest.mark.parametrize(
    ("chmod", "mode", "said"),
    [
        (_fails, 0o666, None),
        (_fails, 0o644, "and that cannot be changed: Operation not permitted"),
        (lambda *_: None, 0o666, "and stays so: its file system keeps no modes"),
    ],
)
def test_where_no_mode_can_be_changed_a_file_that_others_may_write_is_refused_unless_there_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chmod: Callable[..., None], mode: int, said: str | None
) -> None:
    (tmp_path / NAME).touch()
    (tmp_path / NAME).chmod(mode)
    monkeypatch.setattr(os, "chmod", chmod)
    if said:
        assert keep(tmp_path, (NAME,))[0].endswith(said)
    else:
        with pytest.raises(NotOurs, match=r"cannot be changed \(Operation not permitted\): name another directory"):
            keep(tmp_path, (NAME,))


def test_who_only_looks_changes_nothing_and_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / NAME).touch()
    (tmp_path / NAME).chmod(0o666)
    assert keep(tmp_path, (NAME,), mend=False) == [f"{tmp_path / NAME} is open to others (mode 666): `chmod 600` it"]
    assert S_IMODE((tmp_path / NAME).stat().st_mode) == 0o666


def test_where_there_are_no_modes_nothing_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows."""
    monkeypatch.delattr(os, "geteuid")
    (tmp_path / "d").mkdir()
    (tmp_path / "d").chmod(0o777)
    assert keep(tmp_path / "d", ()) == []
    file_permissions.check_named(tmp_path / "d")


def test_a_file_that_is_there_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its descriptor's end would be that of SQLite's locks."""
    make_file(tmp_path / NAME)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        make_file(tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()
    monkeypatch.setattr(os, "close", _fails)
    make_file(tmp_path / NAME)
