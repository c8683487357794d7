"""Questions put to the engine: does it keep within a limit, how do runs differ, what does the real code do. Answers are data."""
