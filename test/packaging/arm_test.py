"""The cross-compiled programs under qemu: plans equal this machine's, byte for byte.

    arm_test.py NATIVE_AUTOMODEL ARM_AUTOMODEL SYSROOT RECIPES
"""
import os
import pathlib
import subprocess
import sys

native, arm, sysroot, recipes = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
emulator = ["qemu-aarch64-static", "-L", str(sysroot)]


def output(command):
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, AUTOMODEL_CALIBRATION=""))
    return done.returncode, done.stdout, done.stderr.replace(str(arm), str(native))


assert arm.read_bytes()[18:20] == b"\xb7\x00", f"{arm} is not a program for 64-bit Arm"

differing = []
# Times and rates of this machine's processor are those of another one there, so plans are for a GPU.
commands = [[*mode, str(recipe), "--hardware.profile", "h100"] for recipe in sorted(recipes.rglob("*.yaml"))
            for mode in (["plan", "--json"], ["plan"])]
commands += [["schema"], ["--help"]]
commands += [["schedule", name, "--pp-size", "4", "--microbatches", "8", "--json"] for name in ("ZBVZeroBubble", "search")]
refused = []
for command in commands:
    here, there = output([str(native), *command]), output([*emulator, str(arm), *command])
    if here[0] != 0:
        refused.append(command)
        assert "error[missing-file]" in here[1] + here[2], (command, here)  # of data that is not in the repository
    if here != there:
        differing.append(command)
        print("DIFFERS:", *command)
        for ours, theirs in zip(here[1].splitlines() + here[2].splitlines(), there[1].splitlines() + there[2].splitlines()):
            if ours != theirs:
                print(" here:", ours[:300], "\n  Arm:", theirs[:300])
                break
print(f"{len(commands)} commands, {len(refused)} of them refused, {len(differing)} differ")
sys.exit(1 if differing else 0)
