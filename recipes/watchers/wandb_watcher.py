#!/usr/bin/env python3
"""Weights & Biases, online or (WANDB_MODE=offline) into ./wandb:

  logging.command: python3 recipes/watchers/wandb_watcher.py PROJECT
"""
import hashlib
import json
import os
import sys

import wandb

run = None
for event in map(json.loads, sys.stdin):
    if event["event"] == "start" and run is None:
        place = os.path.abspath(event["folder"])  # a resumed run goes on under the same id
        run = wandb.init(project=sys.argv[1], name=os.path.basename(place), config=json.loads(event["recipe"]),
                         id=hashlib.sha256(place.encode()).hexdigest()[:12], resume="allow")
    elif event["event"] in ("step", "validation"):
        name = f"{event['name']}/" if "name" in event else ""
        run.log({name + key: value for key, value in event.items()
                 if isinstance(value, (int, float)) and key != "step"}, step=event["step"])
    elif event["event"] in ("warning", "skip", "rollback", "restart", "gave-up"):
        run.alert(title=event["event"], text=event["message"])
    elif event["event"] == "end":
        run.finish(exit_code=0 if event["exit_code"] in (0, 10) else event["exit_code"])  # 10: stopped, resumable
