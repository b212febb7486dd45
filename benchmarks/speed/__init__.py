"""What `measure_speed.py` is made of."""
