"""The parts of the support desk: the shop and its tools, the agents, and the screen."""
