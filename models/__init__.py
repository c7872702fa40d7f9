"""The output-length predictor: how many tokens will this request generate?

Kept free of imports on purpose: a router that runs `import overrun.models.predict` must not pay for the training stack.
"""
