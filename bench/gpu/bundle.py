"""Finds the bundle that is to be checked, and unpacks its archive with care."""

import glob
import os
import pathlib
import posixpath
import tarfile


class BundleError(Exception):
    """There is no usable bundle; the message is one sentence."""


def is_unpacked(folder):
    return (folder / "bin" / "troupe").exists()


def _inside(name, tops):
    """True for a relative path that stays below one of the top folders."""
    normal = posixpath.normpath(name)
    return not posixpath.isabs(name) and normal.split("/")[0] in tops


def check_members(archive, members):
    """The one top folder of an archive's members. BundleError for any that would land elsewhere."""
    tops = {posixpath.normpath(member.name).split("/")[0] for member in members}
    links = {posixpath.normpath(member.name) for member in members if member.issym()}
    for member in members:
        name = member.name
        if posixpath.isabs(name) or ".." in name.split("/"):
            raise BundleError(f"{archive}: member {name!r} would leave the folder it is unpacked to")
        if not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
            raise BundleError(f"{archive}: member {name!r} is a device or pipe, expected files, folders and links")
        parents = [str(parent) for parent in pathlib.PurePosixPath(posixpath.normpath(name)).parents]
        if links & set(parents):
            raise BundleError(f"{archive}: member {name!r} lies below a link")
        if member.issym() or member.islnk():
            base = posixpath.dirname(name) if member.issym() else ""
            if posixpath.isabs(member.linkname) or not _inside(posixpath.join(base, member.linkname), tops):
                raise BundleError(f"{archive}: link {name!r} to {member.linkname!r} leaves the bundle's folder")
    if len(tops) != 1 or tops & {".", ""}:
        raise BundleError(f"{archive}: got {len(tops)} top folders, expected one")
    return tops.pop()


def unpack(archive, folder):
    """Unpacks a .tar.gz into `folder` and returns the bundle's root."""
    try:
        with tarfile.open(archive) as tar:
            members = tar.getmembers()
            top = check_members(archive, members)
            extra = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            tar.extractall(folder, members, **extra)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise BundleError(f"{archive}: not an archive that can be unpacked ({error})") from error
    root = pathlib.Path(folder) / top
    if not is_unpacked(root):
        raise BundleError(f"{archive}: has no {top}/bin/troupe; expected what `./troupe bundle` makes")
    return root


def locate(argument, here, folder):
    """(root, where it came from). `here` is the folder of `check`; archives are unpacked into `folder`."""
    if argument:
        path = pathlib.Path(argument).resolve()
        if path.is_dir():
            found = [root for root in [path, *sorted(path.iterdir())] if is_unpacked(root)]
            if not found:
                raise BundleError(f"{argument}: has no bin/troupe; expected an unpacked bundle or its archive")
            return found[0], str(path)
        if not path.exists():
            raise BundleError(f"{argument}: no such file; expected an unpacked bundle or its archive")
        return unpack(path, folder), path.name
    home = pathlib.Path(here).resolve().parents[1]
    if is_unpacked(home):
        return home, str(home)
    archives = sorted(glob.glob(str(home / "build" / "troupe-*.tar.gz")), key=os.path.getmtime)
    if not archives:
        raise BundleError(f"no bundle: got no BUNDLE and found no build/troupe-*.tar.gz in {home}; `./troupe bundle` makes one")
    return unpack(archives[-1], folder), os.path.basename(archives[-1])
