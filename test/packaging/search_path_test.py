"""Programs and shared objects of a build look for libraries in folders of their own only: never in the current folder.

  search_path_test.py FOLDER
"""
import pathlib
import re
import subprocess
import sys

folder = pathlib.Path(sys.argv[1])
checked = 0
for file in sorted(folder.glob("automodel*")):
    text = subprocess.run(["readelf", "-d", str(file)], capture_output=True, text=True).stdout
    for found in re.finditer(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", text):
        checked += 1
        for entry in found[1].split(":"):
            if not entry.startswith(("/", "$ORIGIN")):
                sys.exit(f"{file}: the search path has the entry '{entry}', which depends on the current folder")
if checked == 0:
    sys.exit(f"no program in {folder} has a search path")
