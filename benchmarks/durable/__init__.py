"""The extension beside the floor: what a loop of bare driver calls reaches on the same jobs and the same server."""
