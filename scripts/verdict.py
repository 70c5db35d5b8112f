# SPDX-License-Identifier: MIT
"""What the checks of the demos found."""


class Verdict:
    """Collects what is wrong."""

    def __init__(self):
        self.failed = False

    def say(self, fine, text):
        print(("ok      " if fine else "FAILED  ") + text)
        self.failed = self.failed or not fine
