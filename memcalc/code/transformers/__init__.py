"""Hugging Face transformers' own modules (checked against 5.24.0), as eager PyTorch runs them."""
