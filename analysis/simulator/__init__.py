"""An inference server, simulated step by step and calibrated on recorded calls."""
