model glm-4.5 --check 0
