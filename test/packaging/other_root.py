"""Runs a command in another system that is installed in a folder: other_root.py ROOT SHARED USER WORDS...

The command sees ROOT as its root and the folder SHARED where it is. It has user, mount and process namespaces of its own, in
which root may do everything, as on a machine without the limits of a container; it runs as USER (0: root). Needs root here.
"""
import ctypes
import os
import pathlib
import subprocess
import sys

NEW_USER, NEW_MOUNTS, NEW_PROCESSES = 0x10000000, 0x00020000, 0x20000000
USERS = "0 0 100000"  # the same numbers inside


def enter(root, shared):
    """Makes ROOT the root of this process."""
    def mount(*words):
        subprocess.run(["mount", *map(str, words)], check=True)
    mount("--make-rprivate", "/")
    mount("--bind", root, root)
    for folder in (root / "old", root / shared.relative_to("/")):
        folder.mkdir(parents=True, exist_ok=True)
    mount("-t", "proc", "proc", root / "proc")
    for folder in ("sys", "dev"):
        mount("--rbind", f"/{folder}", root / folder)
    mount("--bind", shared, root / shared.relative_to("/"))
    os.chdir(root)
    subprocess.run(["pivot_root", ".", "old"], check=True)
    subprocess.run(["umount", "-l", "/old"], check=True)
    os.chdir(shared)


def main():
    root, shared, user = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(), int(sys.argv[3])
    ready, mapped = os.pipe(), os.pipe()
    outer = os.fork()
    if outer == 0:
        if ctypes.CDLL(None).unshare(NEW_USER | NEW_MOUNTS | NEW_PROCESSES) != 0:
            os._exit(77)
        os.write(ready[1], b"x")
        os.read(mapped[0], 1)
        os.setgroups([])
        os.setgid(0)
        os.setuid(0)
        inner = os.fork()
        if inner == 0:
            enter(root, shared)
            if user != 0:
                os.setgid(user)
                os.setuid(user)
            os.execvp(sys.argv[4], sys.argv[4:])
        os._exit(os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1]) & 255)
    os.read(ready[0], 1)
    for name in ("uid_map", "gid_map"):
        pathlib.Path(f"/proc/{outer}/{name}").write_text(USERS)
    os.write(mapped[1], b"x")
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(outer, 0)[1]))


if __name__ == "__main__":
    main()
