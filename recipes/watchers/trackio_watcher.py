#!/usr/bin/env python3
"""trackio, into its folder in the Hugging Face cache; `trackio show` draws it:

  logging.command: python3 recipes/watchers/trackio_watcher.py PROJECT
"""
import json
import os
import sys

import trackio

run = None
for event in map(json.loads, sys.stdin):
    if event["event"] == "start" and run is None:
        place = os.path.abspath(event["folder"])  # a resumed run goes on under the same name
        run = trackio.init(project=sys.argv[1], name=place.strip("/").replace("/", "-"), resume="allow",
                           config=json.loads(event["recipe"]))
    elif event["event"] in ("step", "validation"):
        name = f"{event['name']}/" if "name" in event else ""
        trackio.log({name + key: value for key, value in event.items()
                     if isinstance(value, (int, float)) and key != "step"}, step=event["step"])
    elif event["event"] == "end":
        trackio.finish()
