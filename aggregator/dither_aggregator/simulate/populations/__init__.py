"""The demo's populations: what is asked of simulated devices, and their true answers."""
